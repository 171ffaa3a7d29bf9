// The width of an element, kept up to date.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** A ref for the element, and its width in pixels; 0 before it is known. */
export function useWidth<T extends Element>(): [preact.RefObject<T | null>, number] {
  const frame = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const measure = () => setWidth(element.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [frame, width];
}
