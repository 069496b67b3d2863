/** The router. wouter decodes the search of an address before `URLSearchParams` does: `%2C` and `%20` in a text would be decoded twice. */

import type { ReactNode } from "react";
import { Router } from "wouter";
import { useSearch } from "wouter/use-browser-location";

const useEncodedSearch = () => useSearch().replaceAll("%", "%25");

export function AddressRouter({ children }: { children: ReactNode }) {
  return <Router searchHook={useEncodedSearch}>{children}</Router>;
}
