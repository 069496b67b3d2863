/** An address that leads nowhere. */

import { Link } from "wouter";
import { Empty } from "../components/empty";
import { useTitle } from "../hooks/use-title";

export function NotFoundPage() {
  useTitle("Not found");
  return (
    <main className="page">
      <h1 className="unseen">Not found</h1>
      <Empty title="Page not found">
        <Link className="button" href="/">All jobs</Link>
      </Empty>
    </main>
  );
}
