/** The external id and the tags of something, each of which leads to what else has it. */
import { address } from "../core/router";
import type { Labels } from "../core/types";

/** `path` is the list that they lead to. */
export function LabelWords({ of, path }: { of: Labels; path: string }) {
  return (
    <span class="labels">
      {of.external_id != null && <a href={address(path, { external_id: of.external_id })}>{of.external_id}</a>}
      {of.tags?.map((tag) => (
        <a key={tag} class="tag" href={address(path, { tag })}>
          {tag}
        </a>
      ))}
    </span>
  );
}
