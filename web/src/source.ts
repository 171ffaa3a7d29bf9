// Where recordings come from: the server of the page, an archive embedded in the page, or the kernel of a notebook.

export interface Source {
  get(path: string): Promise<ArrayBuffer>;
  /** Only what can run models has this. */
  post?(path: string, body: unknown): Promise<unknown>;
  /** Whether its paths are addresses that a browser can open. */
  readonly linked?: boolean;
}

export async function getJson<T>(source: Source, path: string): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await source.get(path))) as T;
}

/** The server; all addresses are relative to the page, so no other host is ever contacted. */
export class HttpSource implements Source {
  readonly linked = true;

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
    if (!response.ok) throw new Error(errorText(await response.text(), response.status, path));
    return response;
  }
}

function errorText(body: string, status: number, path: string): string {
  try {
    const answer = JSON.parse(body) as { error?: unknown };
    if (typeof answer.error === "string") return answer.error;
  } catch {
    // Not JSON: report the status.
  }
  return `The server answered ${status} for ${path}.`;
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

  has(path: string): boolean {
    return Object.hasOwn(this.index, path);
  }

  async get(path: string): Promise<ArrayBuffer> {
    if (!this.has(path)) throw new Error(`This file does not hold ${path}.`);
    const [offset, size] = this.index[path];
    return this.bytes.slice(offset, offset + size);
  }
}

/** What the page needs of the model of anywidget. */
export interface WidgetModel {
  get(name: "archive"): DataView<ArrayBuffer>;
  get(name: "height"): number | null;
  get(name: "theme"): string | null;
  send(content: unknown): void;
  on(event: "msg:custom", heard: (content: Answer, buffers: DataView<ArrayBuffer>[]) => void): void;
  on(event: "comm_live_update", heard: () => void): void;
  off(event: string, heard: unknown): void;
}

interface Answer {
  request: string;
  status: number;
}

const GONE = "The kernel of this notebook has ended; run the cell again.";

/** The kernel of a notebook, through the messages of a widget; what the archive holds is there without a kernel, too. */
export class KernelSource implements Source {
  private readonly waiting = new Map<string, { path: string; resolve(body: ArrayBuffer): void; reject(error: Error): void }>();
  private readonly name = Math.random().toString(36).slice(2); // every view of a widget hears the answers to all of them
  private count = 0;
  /** Whether the kernel has answered; until then, and forever if there is none, the archive is all there is. */
  private answers = false;

  constructor(
    private readonly archive: ArchiveSource,
    private readonly model: WidgetModel,
  ) {
    model.on("msg:custom", this.hear);
    model.on("comm_live_update", this.end);
  }

  async get(path: string): Promise<ArrayBuffer> {
    const stored = path === "recordings.json" ? !this.answers : this.archive.has(path);
    return stored ? this.archive.get(path) : this.ask("GET", path);
  }

  async post(path: string, body: unknown): Promise<unknown> {
    const answer = await this.ask("POST", path, body);
    return JSON.parse(new TextDecoder().decode(answer));
  }

  dispose(): void {
    this.model.off("msg:custom", this.hear);
    this.model.off("comm_live_update", this.end);
  }

  private ask(method: string, path: string, body?: unknown): Promise<ArrayBuffer> {
    const request = `${this.name} ${this.count++}`;
    return new Promise((resolve, reject) => {
      this.waiting.set(request, { path, resolve, reject });
      try {
        this.model.send({ request, method, path, body });
      } catch {
        this.end(); // the connection to the kernel is closed
      }
    });
  }

  private readonly hear = ({ request, status }: Answer, [body]: DataView<ArrayBuffer>[]): void => {
    const asked = this.waiting.get(request);
    if (!asked) return;
    this.answers = true;
    this.waiting.delete(request);
    const bytes = body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength);
    if (status < 400) asked.resolve(bytes);
    else asked.reject(new Error(errorText(new TextDecoder().decode(bytes), status, asked.path)));
  };

  private readonly end = (): void => {
    for (const { reject } of this.waiting.values()) reject(new Error(GONE));
    this.waiting.clear();
  };
}
