/** Not signed in: where the link is, or a token instead. */
import { useState } from "preact/hooks";
import { session, signInWith, startSession } from "../state/session.ts";
import { Command, Message } from "../ui/parts.tsx";

export function SignIn() {
  const [token, setToken] = useState("");
  const said = session.value;
  const away = said.kind === "unreachable";
  const why = said.kind === "signed-out" || said.kind === "unreachable" ? said.why : "";
  const submit = (event: Event) => {
    event.preventDefault();
    void signInWith(token);
  };
  return (
    <main class="signin">
      <h1>{away ? "Brain does not answer" : "Sign in to Brain"}</h1>
      {why && <Message kind={away ? "warn" : "quiet"} icon={away ? "silent" : "rejected"} title={why} />}
      {away ? (
        <>
          <p>Jobs keep training without Brain. Start Brain again on its machine:</p>
          <Command text="brain up" />
          <button type="button" class="btn" onClick={() => void startSession()}>Try again</button>
        </>
      ) : (
        <>
          <p>In a terminal, <code>brain sign-in</code> prints a link that signs this browser in, once, within ten minutes:</p>
          <Command text="brain sign-in" />
          <form onSubmit={submit}>
            <label>
              Or paste a token
              <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} placeholder="brn_…" />
            </label>
            <button class="btn pri">Sign in</button>
          </form>
          <p class="mut">The page keeps a pasted token until you close or reload it. The administrator's token is in the file <code>admin.token</code> of Brain's state directory.</p>
        </>
      )}
    </main>
  );
}
