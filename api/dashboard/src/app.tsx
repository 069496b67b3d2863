/** What is on which address. */

import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { Route, Switch } from "wouter";
import { JobPage } from "./routes/job";
import { JobsPage } from "./routes/jobs";
import { NotFoundPage } from "./routes/not-found";
import { TopBar } from "./routes/top-bar";

export function App({ client }: { client: QueryClient }) {
  return (
    <QueryClientProvider client={client}>
      <TopBar />
      <Switch>
        <Route path="/"><JobsPage /></Route>
        <Route path="/jobs/:id">{({ id }) => <JobPage key={id} id={decodeURIComponent(id)} />}</Route>
        <Route><NotFoundPage /></Route>
      </Switch>
    </QueryClientProvider>
  );
}
