/** The page of a browser that is not signed in. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { BAD_LINK, SIGNED_IN } from "../../api/query-client";
import { signIn } from "../../api/session";
import { CopyableText } from "../../components/copyable-text";
import { ProblemNotice } from "../../components/problem-notice";
import { useTitle } from "../../hooks/use-title";
import "./session.css";

/** Its children, or the sign-in page after a response with 401. The address stays. */
export function SignedIn({ children }: { children: ReactNode }) {
  const { data } = useQuery({ queryKey: SIGNED_IN, queryFn: () => true, enabled: false, initialData: true });
  return data ? children : <SignInPage />;
}

function SignInPage() {
  useTitle("Sign in");
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const { data: link } = useQuery<Error | null>({ queryKey: BAD_LINK, queryFn: () => null, enabled: false, initialData: null });
  const enter = useMutation({
    mutationFn: () => signIn({ token }),
    onMutate: () => { client.setQueryData(BAD_LINK, null); },
    onSuccess: () => client.resetQueries(),
  });
  const problem = link ?? enter.error; // the newer one
  return (
    <main className="page">
      <section className="card sign-in stack">
        <h1><img src="/favicon.svg" alt="" width="24" height="24" /> Sign in to Shardyard</h1>
        {problem && <ProblemNotice problem={problem} />}
        <p>On the control plane's machine, or where its token is set, run:</p>
        <CopyableText text="shardyard open" label="Command" />
        <form className="form" onSubmit={(event) => { event.preventDefault(); enter.mutate(); }}>
          <label className="form-wide">
            <span>Or paste the access token that <code>shardyard token</code> prints</span>
            <input type="password" autoComplete="current-password" required value={token} onChange={(event) => { setToken(event.target.value); }} />
          </label>
          <button className="button primary" disabled={enter.isPending || token.trim() === ""}>Sign in</button>
        </form>
      </section>
    </main>
  );
}
