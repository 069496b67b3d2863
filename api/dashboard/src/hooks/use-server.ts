/** What the operator of the control plane has set; undefined until it is read. It does not change while a page is open. */

import { useQuery } from "@tanstack/react-query";
import { getServer, type Server } from "../api/server";

export const useServer = (): Server | undefined =>
  useQuery({ queryKey: ["server"], queryFn: ({ signal }) => getServer(signal), staleTime: Infinity }).data;
