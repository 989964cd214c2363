import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

/** Width of an element in whole pixels; 0 before it was laid out. */
export function useWidth(host: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!host.current) return undefined;
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(host.current);
    return () => watch.disconnect();
  }, []);
  return width;
}
