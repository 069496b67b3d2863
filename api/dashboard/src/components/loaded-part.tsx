/** A part of a page whose scripts are loaded when it is first shown. They may be gone: a control plane has the scripts of its own version only. */

import { Component, type ReactNode, Suspense } from "react";

export class LoadedPart extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError = () => ({ failed: true });

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
