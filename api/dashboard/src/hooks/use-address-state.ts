/** State that is in the address, so that it can be shared and is there again when the page is. */

import { useCallback, useEffect, useState } from "react";
import { useSearchParams } from "wouter";
import { useDebounced } from "./use-debounced";

/** How a value stands in the parameters of an address. Parameters of other names are left as they are. */
export interface AddressForm<T> {
  NAMES: readonly string[];
  read: (params: URLSearchParams) => T;
  write: (value: T) => URLSearchParams;
}

export function useAddressState<T extends object>({ NAMES, read, write }: AddressForm<T>): [T, (changes: Partial<T>) => void] {
  const [params, setParams] = useSearchParams();
  const [value, setValue] = useState(() => read(params));
  // Written once it is stable: browsers limit changes of the address per second, and a slider makes many.
  const settled = useDebounced(write(value).toString());
  useEffect(() => {
    setParams((known) => {
      const next = new URLSearchParams(known);
      const wanted = new URLSearchParams(settled);
      for (const name of NAMES) {
        const [text, ...more] = wanted.getAll(name);
        if (text === undefined) next.delete(name);
        else next.set(name, text);
        for (const each of more) next.append(name, each);
      }
      return next;
    }, { replace: true });
  }, [settled, setParams, NAMES]);
  const change = useCallback((changes: Partial<T>) => { setValue((known) => ({ ...known, ...changes })); }, []);
  return [value, change];
}
