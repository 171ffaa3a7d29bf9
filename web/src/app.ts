// The state of a mounted page. There is one App for each place the page is mounted in (a notebook may have several); components
// reach it through useApp().
import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext, useLayoutEffect } from "preact/hooks";
import { follow, reason, waiting, type Loaded } from "./loading";
import { groupsOf, paint, rowOf, type Arrangement, type Picture, type Row } from "./picture";
import { Recording } from "./recording";
import { read, Selection, write, type Choice } from "./selection";
import { getJson, type Source } from "./source";
import { watchTheme } from "./theme";
import type { Change } from "./change";
import type { ChangeResult, HeadScoresResult, Manifest, ModelInfo, RecordingInfo, WrittenResult } from "./types";
import { groupOf, type Group } from "./word-groups";

/** Makes the picture that Export saves: a complete SVG document. */
export type Drawing = () => string;

export class App {
  readonly selection = new Selection();
  readonly recordings = signal<RecordingInfo[]>([]);
  readonly models = signal<ModelInfo[]>([]);
  /** The open recording; null while it is loading. */
  readonly recording = signal<Recording | null>(null);
  /** What can be chosen: the list, and the open recording if it is not listed, as that of a changed model. */
  readonly choices = computed<RecordingInfo[]>(() => {
    const [list, open] = [this.recordings.value, this.recording.value];
    if (!open || list.some((each) => each.id === open.id)) return list;
    const { title, model, text } = open.manifest;
    return [{ id: open.id, title, model, text }, ...list];
  });
  /** The recording that is shown because the one that the address names is gone; "" for none. */
  readonly substitute = signal("");
  /** Why the recording cannot be shown, as one sentence. */
  readonly failure = signal<string | null>(null);
  /** The tokens under the pointer; they preview what a click would select. */
  readonly hover = signal<{ query: number; key: number | null } | null>(null);
  readonly drawing = signal<Drawing | null>(null);
  readonly playing = signal(false);
  readonly keysOn = signal(true);
  readonly helpOpen = signal(false);
  readonly exportOpen = signal(false);
  /** The name of a view that was requested but cannot show this recording; "" for none. */
  readonly refused = signal("");
  readonly dark = signal(false);
  readonly picture: Signal<Loaded<Picture>> = signal(waiting);
  readonly row: Signal<Loaded<Row>> = signal(waiting);

  readonly attention = computed(() => this.recording.value?.attention(this.selection.attention.value) ?? null);
  readonly queryGroups = computed<Group[]>(() => this.groups(this.attention.value?.queries));
  readonly keyGroups = computed<Group[]>(() => this.groups(this.attention.value?.keys));
  /** Whether the selected query is a hidden special token. */
  readonly wordHidden = computed(() => this.queryGroups.value.length > 0 && groupOf(this.queryGroups.value, this.selection.query.value) < 0);

  private readonly disposers: (() => void)[] = [];
  /** While the page itself chooses what to show: then the address changes without a new entry in the browser's history. */
  private choosing = false;
  /** Numbers of the last list that was requested, and of the one that is shown. */
  private asked = 0;
  private listed = 0;

  /** `theme` is "light" or "dark"; null follows the notebook or the system. */
  constructor(
    readonly source: Source,
    private readonly hash: boolean,
    theme: string | null = null,
  ) {
    if (theme === null) this.disposers.push(watchTheme((dark) => (this.dark.value = dark)));
    else this.dark.value = theme === "dark";
    this.disposers.push(effect(() => this.openChosen()));
    this.disposers.push(follow(this.picture, () => this.loadPicture()));
    this.disposers.push(follow(this.row, () => this.loadRow()));
    this.disposers.push(effect(() => this.play()));
    if (hash) this.keepHash();
    void this.start();
  }

  /** Whether there is a server that can run models. */
  get live(): boolean {
    return this.source.post !== undefined;
  }

  dispose(): void {
    for (const dispose of this.disposers) dispose();
  }

  /** Load the list of recordings, then show the one that the address names, or the first. */
  async start(): Promise<void> {
    try {
      await this.list();
      const asked = this.hash ? read(location.hash) : {};
      const known = asked.recording !== undefined && (await this.holds(asked.recording));
      if (known) this.selection.choose(asked);
      else this.showFirst(asked);
      if (this.live) await this.pollModels(known ? null : asked);
    } catch (error) {
      this.failure.value = reason(error);
    }
  }

  /** Whether a recording can be opened. That of a changed model is not listed. */
  private async holds(id: string): Promise<boolean> {
    if (this.recordings.value.some((each) => each.id === id)) return true;
    return Recording.open(this.source, id).then(
      () => true,
      () => false,
    );
  }

  /** Show the newest recording, with the view and head that the address names. */
  private showFirst(asked: Partial<Choice>): void {
    const first = this.recordings.value[0]?.id ?? "";
    if (asked.recording) this.substitute.value = first;
    this.choosing = true;
    this.selection.choose({ ...asked, recording: first });
    this.choosing = false;
    if (!first) this.failure.value = "There is no recording to show yet.";
  }

  /** Load the list of recordings; a response that arrives after a later one is ignored. */
  async list(): Promise<void> {
    const mine = ++this.asked;
    const found = await getJson<RecordingInfo[]>(this.source, "recordings.json");
    if (mine < this.listed) return;
    this.listed = mine;
    this.recordings.value = found;
  }

  /** Run a model on a query; return the id of the recording. An error is one sentence. */
  async record(query: { model: string; text: string; target?: string; image?: string }): Promise<string> {
    const { id } = (await this.source.post?.("record", query)) as { id: string };
    await this.list();
    return id;
  }

  /** Run the changed model on the tokens of a recording; return the id of that recording, and how the two differ. */
  async change(recording: string, changes: readonly Change[]): Promise<ChangeResult & { id: string }> {
    return (await this.source.post?.("change", { recording, changes })) as ChangeResult & { id: string };
  }

  /** Known behaviours of all heads on a probe text, and their importance on the text of a recording. */
  async headScores(recording: string): Promise<HeadScoresResult> {
    return (await this.source.post?.("heads", { recording })) as HeadScoresResult;
  }

  /** What the model writes by itself, unchanged and changed. */
  async written(recording: string, changes: readonly Change[]): Promise<WrittenResult> {
    return (await this.source.post?.("change", { recording, changes, write: true })) as WrittenResult;
  }

  /** The model that made a recording, if it can be run on another text. */
  modelOf({ title, model }: Manifest): ModelInfo | null {
    const found = this.live ? this.models.value.find((each) => each.name === title && each.what === model) : null;
    return found?.ready && !found.image ? found : null;
  }

  /** Move the query or the key by a number of words. */
  move(axis: "query" | "key", by: number): void {
    const groups = axis === "query" ? this.queryGroups.value : this.keyGroups.value;
    if (!groups.length) return;
    const now = groupOf(groups, this.selection[axis].value);
    const next = groups[Math.max(0, Math.min(groups.length - 1, now + by))];
    this.hover.value = null;
    this.selection.choose({ [axis]: next.tokens[0] });
  }

  /** A click: select a query and a key; with shift, add the query to the selected ones, or remove it. */
  pick(query: number | null, key: number | null, more: boolean): void {
    const change = key === null ? {} : { key };
    if (query === null) return this.selection.choose(change);
    if (!more) return this.selection.choose({ ...change, query, pinned: [] });
    this.pin(query);
  }

  pin(query: number): void {
    const pinned = this.selection.pinned.value;
    this.selection.choose({ pinned: pinned.includes(query) ? pinned.filter((each) => each !== query) : [...pinned, query] });
  }

  /** Move to another attention in the list. */
  moveLayer(by: number): void {
    const list = this.recording.value?.manifest.attentions ?? [];
    const now = list.findIndex((each) => each.id === this.selection.attention.value);
    const next = list[Math.max(0, Math.min(list.length - 1, now + by))];
    if (next) this.selection.choose({ attention: next.id });
  }

  private groups(sequence: string | undefined): Group[] {
    const recording = this.recording.value;
    return recording && sequence !== undefined ? groupsOf(recording, sequence, this.arrangement()) : [];
  }

  private openChosen(): void {
    const id = this.selection.recording.value;
    if (!id || this.recording.peek()?.id === id) return;
    this.recording.value = null;
    this.failure.value = null;
    Recording.open(this.source, id).then(
      (recording) => {
        if (this.selection.recording.value !== id) return;
        batch(() => {
          this.hover.value = null;
          this.selection.settle(recording.manifest);
          this.recording.value = recording;
        });
      },
      (error: unknown) => {
        if (this.selection.recording.value === id) this.failure.value = reason(error);
      },
    );
  }

  arrangement(): Arrangement {
    const { merge, hide, renormalise } = this.selection;
    return { merge: merge.value, hide: hide.value, renormalise: renormalise.value };
  }

  private async loadPicture(): Promise<Picture | null> {
    const recording = this.recording.value;
    const attention = this.attention.value;
    const head = this.selection.head.value;
    const step = this.selection.step.value;
    const how = this.arrangement();
    return recording && attention ? paint(recording, attention, head, step, how) : null;
  }

  private async loadRow(): Promise<Row | null> {
    const picture = this.picture.value.value;
    const hover = this.hover.value;
    const tokens = hover ? [hover.query] : [this.selection.query.value, ...this.selection.pinned.value];
    const how = this.arrangement();
    return picture ? rowOf(picture, tokens, how, hover === null) : null;
  }

  private play(): (() => void) | void {
    if (!this.playing.value) return;
    const steps = this.recording.value?.manifest.steps.length ?? 0;
    const rows = this.attention.value?.rows ?? 1;
    const timer = setInterval(() => {
      const { step, query } = this.selection.choice.peek();
      const drawn = this.picture.peek().value;
      if (drawn && drawn.step !== step) return; // wait for slow steps, which would otherwise never be seen
      if (steps > 1) this.selection.choose({ step: (step + 1) % steps });
      else if (query >= rows - 1) this.selection.choose({ query: 0 });
      else this.move("query", 1);
    }, 700);
    return () => clearInterval(timer);
  }

  /** Keep the selection in the address. Another recording or view is a new place, to which the back button returns. */
  private keepHash(): void {
    let place = "";
    let known = location.hash; // another one is where the browser has moved to, and the event that says so will come
    const listen = () => {
      known = location.hash;
      this.choosing = true;
      this.selection.choose(read(known));
      this.choosing = false;
    };
    addEventListener("hashchange", listen);
    this.disposers.push(() => removeEventListener("hashchange", listen));
    this.disposers.push(
      effect(() => {
        const { recording, view } = this.selection.choice.value;
        const before = place;
        place = `${recording} ${view}`;
        const text = `#${write(this.selection.choice.value)}`;
        if (!recording || text === location.hash || location.hash !== known) return;
        const moved = before.trim() && place !== before && !this.choosing;
        history[moved ? "pushState" : "replaceState"](null, "", text);
        known = location.hash;
      }),
    );
  }

  /** Poll the models until each is ready or has failed. A model that becomes ready may have made a recording, which is
   * shown unless the address names a recording (`asked` is null) or the user has selected one meanwhile. */
  private async pollModels(asked: Partial<Choice> | null): Promise<void> {
    let ended = false;
    this.disposers.push(() => (ended = true));
    let settled = 0;
    while (!ended) {
      try {
        this.models.value = await getJson<ModelInfo[]>(this.source, "models.json");
      } catch (error) {
        const failed = { error: reason(error) };
        this.models.value = this.models.value.map((model) => (model.ready || model.error ? model : { ...model, ...failed }));
        return;
      }
      const now = this.models.value.filter((model) => model.ready || model.error).length;
      if (now > settled) {
        settled = now;
        const shown = this.recordings.value[0]?.id ?? "";
        await this.list();
        const isNew = (this.recordings.value[0]?.id ?? "") !== shown;
        if (asked && isNew && this.selection.recording.value === shown) this.showFirst(asked);
      }
      if (settled === this.models.value.length) return;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

const Context = createContext<App | null>(null);
export const AppProvider = Context.Provider;

export function useApp(): App {
  const app = useContext(Context);
  if (!app) throw new Error("useApp outside of a page");
  return app;
}

/** For views: sets what Export saves while this view is shown. */
export function useDrawing(drawing: Drawing): void {
  const app = useApp();
  useLayoutEffect(() => {
    app.drawing.value = drawing;
    return () => {
      if (app.drawing.peek() === drawing) app.drawing.value = null;
    };
  });
}
