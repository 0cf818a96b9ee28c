/** Which tenant a page is about: the one that the address names, or else the key's own. */
import { useLocation } from "./router";
import { useSession } from "./session";

export interface Tenant {
  /** To be shown, and for the parameter `tenant` of calls, also where it is the key's own: a call is about the tenant that is shown. */
  name: string;
  /** Whether the address names it, rather than that nothing was picked. */
  picked: boolean;
}

export function useTenant(): Tenant {
  const session = useSession();
  const named = useLocation().query.get("tenant");
  return named === null || named === "" ? { name: session.tenant, picked: false } : { name: named, picked: true };
}
