/** Templates: what callers may name in place of a content, and what a notification would send, without sending it. */
import { useState } from "preact/hooks";
import { asProblem, get, post, Problem } from "../core/api";
import { useChannels } from "../core/channels";
import { count } from "../core/format";
import { useLoad } from "../core/load";
import type { PreviewAnswer, Template } from "../core/records";
import { addressWith, setQuery, useLocation } from "../core/router";
import { useGranted } from "../core/session";
import type { Channel, Listed } from "../core/types";
import { Badge } from "../parts/badge";
import { Codes } from "../parts/codes";
import { AreaInput, SelectInput, TextInput } from "../parts/inputs";
import { Facts, PageHead, Panel } from "../parts/panel";
import { Empty, Failed, Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";

export function Templates() {
  const templates = useLoad((signal) => every(signal), []);
  const channels = useChannels();
  const mayPreview = useGranted("send");
  const named = useLocation().query.get("template");
  const items = templates.data ?? [];
  const opened = items.find(({ name }) => name === named) ?? null;
  return (
    <>
      <PageHead title="Templates" note="of the configuration: contents that callers name in place of one of their own" />
      {templates.problem !== null && <Failed problem={templates.problem} again={templates.again} />}
      {templates.data === null ? (
        templates.problem === null && <Waiting />
      ) : (
        <Table caption="Templates" columns={columns} rows={items} rowKey={({ name }) => name} current={named} empty="No template is configured. One is a table of the configuration, such as [templates.welcome]." />
      )}
      {named !== null && templates.data !== null && opened === null && <Empty>There is no template {named} that this key may see.</Empty>}
      {opened !== null && <OneTemplate key={opened.name} of={opened} />}
      {mayPreview && channels.data !== null && <Preview key={opened?.name ?? ""} template={opened} channels={channels.data.items} />}
      {channels.problem !== null && <Failed problem={channels.problem} again={channels.again} />}
    </>
  );
}

/** All of them: they are as many as the configuration has. */
async function every(signal: AbortSignal): Promise<Template[]> {
  const items: Template[] = [];
  let after: string | null = null;
  do {
    const page: Listed<Template> = await get<Listed<Template>>("/v1/templates", { after }, signal);
    items.push(...page.items);
    after = page.next;
  } while (after !== null);
  return items;
}

const columns: Column<Template>[] = [
  {
    key: "name",
    head: "Name",
    sort: ({ name }) => name,
    cell: ({ name }) => (
      <a href={addressWith({ template: name })} aria-label={`Open the template ${name}`}>
        {name}
      </a>
    ),
  },
  { key: "channel", head: "Meant for", sort: ({ channel }) => channel, cell: ({ channel }) => channel ?? <span class="mute">any channel</span> },
  { key: "variables", head: "Variables", cell: ({ variables }) => variables.join(", ") || <span class="mute">none</span> },
];

function OneTemplate({ of }: { of: Template }) {
  return (
    <Panel
      title={of.name}
      aside={
        <button type="button" class="plain" onClick={() => setQuery({ template: null })}>
          Close
        </button>
      }
    >
      <Facts
        of={[
          ["Meant for", of.channel ?? "any channel that takes it"],
          ["Variables", of.variables.join(", ") || "none"],
        ]}
      />
      <div class="previewed">
        <Codes content={of.content} options={of.options} of="of the template" />
      </div>
    </Panel>
  );
}

/** An object with all that a template uses, to begin with: `user.name` stands within `user`. */
function sampleOf(template: Template | null): string {
  const sample: Record<string, unknown> = {};
  for (const path of template?.variables ?? []) {
    const names = path.split(".");
    let within = sample;
    for (const name of names.slice(0, -1)) {
      if (typeof within[name] !== "object") within[name] = {};
      within = within[name] as Record<string, unknown>;
    }
    within[names.at(-1) ?? path] ??= "";
  }
  return JSON.stringify(sample, null, 2);
}

/** JSON of a field; what is wrong with it is told as the engine tells of a wrong field. */
function parsed(text: string, pointer: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new Problem(0, { title: "A field is no JSON", detail: "", code: "page", errors: [{ pointer, message }] });
  }
}

function Preview({ template, channels }: { template: Template | null; channels: readonly Channel[] }) {
  const [channel, setChannel] = useState(template?.channel ?? channels[0]?.name ?? "");
  const [to, setTo] = useState("");
  const [content, setContent] = useState('{\n  "text": "Dear {{ name }}"\n}');
  const [variables, setVariables] = useState(sampleOf(template));
  const [answer, setAnswer] = useState<PreviewAnswer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);

  const preview = async () => {
    setBusy(true);
    setProblem(null);
    setAnswer(null);
    try {
      const what = template === null ? { content: parsed(content, "/content") } : { template: template.name };
      const body = { channel, to: to.trim(), ...what, ...(variables.trim() === "" ? {} : { variables: parsed(variables, "/variables") }) };
      setAnswer(await post<PreviewAnswer>("/v1/preview", {}, { body }));
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  };

  return (
    <Panel title={template === null ? "Preview of a content" : `Preview of ${template.name}`} aside="nothing is sent or stored">
      <form
        class="stack"
        aria-label="Preview"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void preview();
        }}
      >
        <div class="fields">
          <SelectInput label="Channel" value={channel} options={channels.map(({ name, kind }) => [name, name === kind ? name : `${name} (${kind})`])} set={setChannel} />
          <TextInput label="Recipient" value={to} required placeholder="as it would be handed in" set={setTo} />
        </div>
        <div class="columns">
          {template === null && <AreaInput label="Content, JSON" value={content} set={setContent} />}
          <AreaInput label="Variables, JSON" value={variables} set={setVariables} />
        </div>
        <p class="actions">
          <button type="submit" class="primary" disabled={busy}>
            Preview
          </button>
        </p>
      </form>
      {problem !== null && <Failed problem={problem} />}
      {answer !== null && <Previewed answer={answer} />}
    </Panel>
  );
}

function Previewed({ answer }: { answer: PreviewAnswer }) {
  return (
    <div class="previewed" role="status" aria-label="Result of the preview">
      <p>
        <Badge tone={answer.accepted ? "ok" : "bad"}>{answer.accepted ? "the channel takes it" : "the channel does not take it"}</Badge>, {count(answer.bytes)} bytes
      </p>
      {answer.error != null && (
        <p class="warning">
          <code>{answer.error.pointer}</code> {answer.error.message}
        </p>
      )}
      <Codes content={answer.content} options={answer.options} of="that would be sent" />
    </div>
  );
}
