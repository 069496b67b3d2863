/** The routes: which page each address shows. */

import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { lazy, type ReactNode } from "react";
import { Route, Switch, useLocation } from "wouter";
import { AddressRouter } from "./components/address-router";
import { LoadedPart } from "./components/loaded-part";
import { RouteChange } from "./components/route-change";
import { SignedIn } from "./features/session/sign-in";
import { idOf } from "./model/addresses";
import { ClusterPage } from "./routes/cluster";
import { ComparePage } from "./routes/compare";
import { JobPage } from "./routes/job";
import { JobsPage } from "./routes/jobs";
import { NewJobPage } from "./routes/new-job";
import { NotFoundPage } from "./routes/not-found";
import { SecretsPage } from "./routes/secrets";
import { TopBar } from "./routes/top-bar";

const ModelsPage = lazy(async () => ({ default: (await import("./routes/models")).ModelsPage }));
const ModelPage = lazy(async () => ({ default: (await import("./routes/model")).ModelPage }));
const SweepsPage = lazy(async () => ({ default: (await import("./routes/sweeps")).SweepsPage }));
const SweepPage = lazy(async () => ({ default: (await import("./routes/sweep")).SweepPage }));

/** An error of one page hides no other: the next address is shown again. */
function Page({ children }: { children: ReactNode }) {
  const [address] = useLocation();
  return <LoadedPart at={address}>{children}</LoadedPart>;
}

export function App({ client }: { client: QueryClient }) {
  return (
    <QueryClientProvider client={client}>
      <AddressRouter><SignedIn>
        <a className="skip" href="#content">Skip to the content</a>
        <TopBar />
        <RouteChange><Page>
          <Switch>
            <Route path="/"><JobsPage /></Route>
            <Route path="/new"><NewJobPage /></Route>
            <Route path="/cluster/:tab?">{({ tab }) => <ClusterPage tab={tab} />}</Route>
            <Route path="/compare"><ComparePage /></Route>
            <Route path="/secrets"><SecretsPage /></Route>
            <Route path="/models"><ModelsPage /></Route>
            <Route path="/models/:name">{({ name }) => <ModelPage key={name} name={idOf(name)} />}</Route>
            <Route path="/sweeps"><SweepsPage /></Route>
            <Route path="/sweeps/:id">{({ id }) => <SweepPage key={id} id={idOf(id)} />}</Route>
            <Route path="/jobs/:id/:tab?">{({ id, tab }) => <JobPage key={id} id={idOf(id)} tab={tab} />}</Route>
            <Route><NotFoundPage /></Route>
          </Switch>
        </Page></RouteChange>
      </SignedIn></AddressRouter>
    </QueryClientProvider>
  );
}
