/** A test message: one urgent notification by a channel, which is then followed until it ends. */
import { useState } from "preact/hooks";
import { asProblem, get, post, type Problem } from "../core/api";
import { useNow } from "../core/clock";
import { age } from "../core/format";
import { useEvery, useLoad } from "../core/load";
import { address } from "../core/router";
import { useSession } from "../core/session";
import type { Channel, Notification, State } from "../core/types";
import { announce } from "./announce";
import { StateBadge } from "./badge";
import { Panel } from "./panel";
import { Failed, Waiting } from "./states";
import { Timeline } from "./timeline";

interface Example {
  /** What a recipient is called, and how one looks. */
  to: string;
  placeholder: string;
  content: unknown;
}

const words = "A test from the dashboard of Belfry";

/** The shortest contents that channels of each kind take. */
const examples: Record<string, Example> = {
  apns: { to: "Device token", placeholder: "64 to 200 hexadecimal digits", content: { aps: { alert: words } } },
  fcm: { to: "Registration token or topic", placeholder: "/topics/test", content: { notification: { title: "Test", body: words } } },
  smtp: { to: "Address", placeholder: "you@example.com", content: { subject: words, text: words } },
  webhook: { to: "URL", placeholder: "https://example.com/hook", content: { text: words } },
  webpush: { to: "Subscription", placeholder: "what JSON.stringify(subscription) gives", content: { text: words } },
  stream: { to: "Topic, queue or subject", placeholder: "test", content: { text: words } },
};
const otherwise: Example = { to: "Recipient", placeholder: "test", content: { text: words } };

const endStates: readonly State[] = ["delivered", "refused", "expired", "cancelled", "suppressed", "in_doubt", "dead"];

export function TestMessage({ channel }: { channel: Channel }) {
  const session = useSession();
  const example = examples[channel.kind] ?? otherwise;
  const [to, setTo] = useState("");
  const [content, setContent] = useState(() => JSON.stringify(example.content, null, 2));
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [sent, setSent] = useState<string | null>(null);

  const send = async () => {
    setBusy(true);
    setProblem(null);
    try {
      const body = { channel: channel.name, to, content: JSON.parse(content) as unknown, priority: "urgent" };
      const { id } = await post<{ id: string }>("/v1/notifications", {}, { body, headers: { "idempotency-key": freshKey() } });
      setSent(id);
      announce(`The test by ${channel.name} is accepted`);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };

  return (
    <Panel title={`Test message by ${channel.name}`} aside={`of the tenant ${session.tenant}, counted like any other`}>
      <form
        class="stack"
        aria-label="Test message"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void send();
        }}
      >
        <label>
          <span>{example.to}</span>
          <input value={to} required placeholder={example.placeholder} autocomplete="off" spellcheck={false} onInput={(event) => setTo(event.currentTarget.value)} />
        </label>
        <label>
          <span>Content (JSON)</span>
          <textarea value={content} required rows={6} spellcheck={false} onInput={(event) => setContent(event.currentTarget.value)} />
        </label>
        {problem !== null && <Failed problem={problem} />}
        <div class="actions">
          <button type="submit" class="primary" disabled={busy}>
            Send one message to this recipient
          </button>
        </div>
      </form>
      {sent !== null && <Followed key={sent} id={sent} />}
    </Panel>
  );
}

/** A key for a request that was never made before. `crypto.randomUUID` is not there on plain http. */
function freshKey(): string {
  return `dashboard-${[...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function Followed({ id }: { id: string }) {
  const now = useNow();
  const session = useSession();
  const one = useLoad((signal) => get<Notification>(`/v1/notifications/${id}`, {}, signal), [id]);
  const ended = one.data !== null && endStates.includes(one.data.state);
  useEvery(ended ? null : 1000, one.refresh);
  if (one.data === null) return one.problem === null ? <Waiting /> : <Failed problem={one.problem} again={one.again} />;
  const { state, next_attempt_at: next, attempts } = one.data;
  return (
    <div class="followed" aria-live="polite">
      <p>
        <StateBadge state={state} /> <a href={address(`/notifications/${id}`, { tenant: session.tenant })}>{id}</a>
        {!ended && next !== null && attempts.length > 0 && <span class="mute"> the next attempt is made {age(next, now)}</span>}
      </p>
      <Timeline attempts={attempts} />
    </div>
  );
}
