/** `?`: every key that works here. */
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { bindings } from "../state/keys.ts";

const open = signal(false);

export function openHelp(): void {
  open.value = true;
}

export function Help() {
  return open.value ? <Sheet /> : null;
}

function Sheet() {
  const host = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => host.current?.showModal(), []);
  const all = [{ keys: "⌘ k", does: "find a job, node, plan or action" }, ...bindings.value];
  return (
    <dialog ref={host} class="ask" aria-labelledby="help-title" onClose={() => (open.value = false)}>
      <form method="dialog">
        <h2 id="help-title">Keyboard</h2>
        <dl class="keys">
          {all.map(({ keys, does }) => (
            <div key={keys}>
              <dt>{keys.split(" ").map((key) => <kbd key={key}>{key.length === 1 ? key.toUpperCase() : key}</kbd>)}</dt>
              <dd>{does}</dd>
            </div>
          ))}
        </dl>
        <div class="acts"><button class="btn" autofocus>Close</button></div>
      </form>
    </dialog>
  );
}
