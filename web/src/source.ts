// Where recordings come from: the server of the page, or an archive embedded in the page.

export interface Source {
  get(path: string): Promise<ArrayBuffer>;
  /** Only a server has this. */
  post?(path: string, body: unknown): Promise<unknown>;
}

export async function getJson<T>(source: Source, path: string): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await source.get(path))) as T;
}

/** The server; all addresses are relative to the page, so no other host is ever contacted. */
export class HttpSource implements Source {
  async get(path: string): Promise<ArrayBuffer> {
    const response = await this.ask(path);
    return response.arrayBuffer();
  }

  async post(path: string, body: unknown): Promise<unknown> {
    const headers = { "Content-Type": "application/json" };
    const response = await this.ask(path, { method: "POST", headers, body: JSON.stringify(body) });
    return response.json();
  }

  private async ask(path: string, options?: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(path.split("/").map(encodeURIComponent).join("/"), options);
    } catch {
      throw new Error("The viewer's server does not answer; is it still running?");
    }
    if (!response.ok) throw new Error(await errorText(response, path));
    return response;
  }
}

async function errorText(response: Response, path: string): Promise<string> {
  try {
    const answer = (await response.json()) as { error?: unknown };
    if (typeof answer.error === "string") return answer.error;
  } catch {
    // Not JSON: report the status.
  }
  return `The server answered ${response.status} for ${path}.`;
}

type Index = Record<string, [offset: number, size: number]>;

/** zlib( uint32 length of the index | index {path: [offset, size]} | bytes ), offsets counted from the first of the bytes. */
export class ArchiveSource implements Source {
  private constructor(
    private readonly index: Index,
    private readonly bytes: ArrayBuffer,
  ) {}

  static async unpack(packed: Uint8Array<ArrayBuffer>): Promise<ArchiveSource> {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const content = await new Response(stream).arrayBuffer();
    const length = new DataView(content).getUint32(0, true);
    const index = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, length))) as Index;
    return new ArchiveSource(index, content.slice(4 + length));
  }

  static async decode(base64: string): Promise<ArchiveSource> {
    const characters = atob(base64.trim());
    const packed = new Uint8Array(characters.length);
    for (let at = 0; at < packed.length; at++) packed[at] = characters.charCodeAt(at);
    return ArchiveSource.unpack(packed);
  }

  async get(path: string): Promise<ArrayBuffer> {
    if (!Object.hasOwn(this.index, path)) throw new Error(`This file does not hold ${path}.`);
    const [offset, size] = this.index[path];
    return this.bytes.slice(offset, offset + size);
  }
}
