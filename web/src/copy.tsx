// A button that copies a text. Where the browser does not allow that, the text appears, selected, to be copied by hand.
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface CopyProps {
  title: string;
  /** What is copied, for screen readers and messages: "NumPy script". */
  name: string;
  text(): string;
  /** What is said after the text was copied. */
  said(text: string): string;
}

export function Copy({ title, name, text, said }: CopyProps) {
  const message = useSignal("");
  const shown = useSignal<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => area.current?.select(), [shown.value]);
  const copy = async () => {
    const content = text();
    try {
      await navigator.clipboard.writeText(content);
      shown.value = null;
      message.value = said(content);
    } catch {
      shown.value = content;
      message.value = `The browser does not allow access to the clipboard; copy the ${name} from here.`;
    }
  };
  return (
    <>
      <span class="soft" role="status">
        {message.value}
      </span>
      <button type="button" onClick={copy}>
        {title}
      </button>
      {shown.value !== null && <textarea class="copied" ref={area} readOnly rows={Math.min(12, shown.value.split("\n").length)} spellcheck={false} aria-label={name} value={shown.value} />}
    </>
  );
}
