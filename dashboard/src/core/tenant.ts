/** Which tenant a page is about: the one that the address names, which only an operator may do, or else the key's own. */
import { useLocation } from "./router";
import { isOperator, useSession } from "./session";

export interface Tenant {
  /** The name, to be shown. */
  name: string;
  /** For the parameter `tenant` of calls: null stands for the key's own, without naming it. */
  asked: string | null;
  /** Whether the address names it, rather than that nothing was picked. */
  picked: boolean;
}

export function useTenant(): Tenant {
  const session = useSession();
  const named = useLocation().query.get("tenant");
  if (named === null || named === "" || !isOperator(session)) return { name: session.tenant, asked: null, picked: false };
  return { name: named, asked: named === session.tenant ? null : named, picked: true };
}
