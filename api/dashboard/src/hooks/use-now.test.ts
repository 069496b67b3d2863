import { act, renderHook } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { useNow } from "./use-now";

afterEach(() => { vi.useRealTimers(); });

test.each([[undefined, 20], [10_000, 2]])("with %s ms it is drawn again %d times in 20 s", (everyMs, times) => {
  vi.useFakeTimers();
  let drawn = 0;
  const { result, unmount } = renderHook(() => { drawn += 1; return useNow(everyMs); });
  const [begun, before] = [result.current.getTime(), drawn];
  for (let second = 0; second < 20; second += 1) act(() => { vi.advanceTimersByTime(1000); });
  expect([drawn - before, result.current.getTime() - begun]).toEqual([times, 20_000]);
  unmount();
  expect(vi.getTimerCount()).toBe(0);
});
