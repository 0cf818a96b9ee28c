/** The list of what is wrong now, or that nothing is and since when. */
import { address } from "../core/router";
import { coveredWords, readScope } from "../core/scopes";
import type { Finding } from "../core/findings";
import { plural } from "../core/format";
import { useGranted } from "../core/session";
import { Badge, type Tone } from "./badge";
import { Panel } from "./panel";
import { askResume } from "./pausing";
import { Instant } from "./time";

function tone(gravity: number): Tone {
  return gravity < 10 ? "bad" : gravity < 20 ? "warn" : "calm";
}

const grades: Record<string, string> = { bad: "fails", warn: "look", calm: "note" };

/** `fineSince` is since when nothing was wrong, null where that is not known. */
export function Findings({ found, fineSince, known }: { found: readonly Finding[]; fineSince: number | null; known: boolean }) {
  return (
    <Panel title="What is wrong now" className="wrong" aside={found.length > 0 ? plural(found.length, "finding") : undefined}>
      <div aria-live="polite" aria-relevant="additions">
        {!known && found.length === 0 && <p class="waiting">Looking…</p>}
        {known && found.length === 0 && (
          <p class="fine">
            <Badge tone="ok">Nothing is wrong.</Badge> <span class="mute">
              Looked at each second{fineSince !== null && ", since "}
              {fineSince !== null && <Instant at={new Date(fineSince).toISOString()} />}.
            </span>
          </p>
        )}
        <ol>
          {found.map((finding) => (
            <Line key={finding.key} finding={finding} />
          ))}
        </ol>
      </div>
    </Panel>
  );
}

function Line({ finding }: { finding: Finding }) {
  const grade = tone(finding.gravity);
  return (
    <li class={grade}>
      <Badge tone={grade}>{grades[grade]}</Badge>
      <div>
        <h3>{finding.title}</h3>
        <p>{finding.text}</p>
      </div>
      <div class="actions">
        <EndPause finding={finding} />
        {finding.links.map(({ label, path, query }) => (
          <a key={label} href={address(path, query)} aria-label={`${label}: ${finding.title}`}>
            {label}
          </a>
        ))}
      </div>
    </li>
  );
}

function EndPause({ finding }: { finding: Finding }) {
  const may = useGranted("cancel");
  const pause = finding.pause;
  const covered = pause === undefined ? null : readScope(pause.scope);
  if (!may || pause === undefined || covered === null) return null;
  return (
    <button type="button" aria-label={`Resume ${coveredWords(covered)} of ${pause.tenant}`} onClick={() => askResume(pause.tenant, covered)}>
      Resume
    </button>
  );
}
