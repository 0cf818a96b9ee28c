/** The log-in: a key becomes a session. It stands alone, or above a page whose session is over. */
import { useState } from "preact/hooks";
import { asProblem, type Problem } from "../core/api";
import { logIn } from "../core/session";
import { Failed } from "../parts/states";

export function LogIn() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await logIn(key.trim());
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  };
  return (
    <form
      class="login"
      aria-label="Log in"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy && key.trim() !== "") void submit();
      }}
    >
      <label>
        <span>API key</span>
        <input type="password" name="key" value={key} autocomplete="current-password" spellcheck={false} required autofocus onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <p class="mute">
        That of an operator: it begins with <code>belfry_</code> and has the scope <code>operate</code>, and <code>read</code> to see anything. What else it is not good for is not shown.
      </p>
      {problem !== null && <Failed problem={problem} />}
      <button type="submit" class="primary" disabled={busy}>
        {busy ? "Logging in…" : "Log in"}
      </button>
    </form>
  );
}
