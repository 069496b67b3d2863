/**
 * A part of a page whose scripts are loaded when it is first shown, or whose error is to hide nothing else.
 * Scripts may be gone: a control plane has those of its own version only.
 */

import { Component, type ReactNode, Suspense } from "react";

interface State {
  failed: boolean;
  at: string | undefined;
}

/** `at`: what it shows. Another value is tried again after a failure. */
export class LoadedPart extends Component<{ children: ReactNode; at?: string }, State> {
  override state: State = { failed: false, at: this.props.at };

  static getDerivedStateFromError = () => ({ failed: true });

  static getDerivedStateFromProps = ({ at }: { at?: string }, state: State) => (at === state.at ? null : { failed: false, at });

  override render() {
    if (!this.state.failed) return <Suspense fallback={<p className="quiet">Loading…</p>}>{this.props.children}</Suspense>;
    return (
      <div className="card pad" role="alert">
        <p className="before">This part of the page could not be shown. Its scripts may be those of an older version.</p>
        <button className="button" onClick={() => { location.reload(); }}>Load the page again</button>
      </div>
    );
  }
}
