/** The channels of the engine, for what is picked by channel. */
import { get } from "./api";
import { useLoad, type Loaded } from "./load";
import type { Channel, Listed } from "./types";

/** `names` has `also`, too, where it is none of them: what the address names may be no channel any more. */
export function useChannels(also: string | null = null): Loaded<Listed<Channel>> & { names: readonly string[] } {
  const loaded = useLoad((signal) => get<Listed<Channel>>("/v1/channels", {}, signal), []);
  const names = loaded.data?.items.map(({ name }) => name) ?? [];
  return { ...loaded, names: also === null || also === "" || names.includes(also) ? names : [...names, also] };
}
