/** The routes: which page each address shows. */

import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { lazy } from "react";
import { Route, Switch } from "wouter";
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

export function App({ client }: { client: QueryClient }) {
  return (
    <QueryClientProvider client={client}>
      <AddressRouter><SignedIn>
        <a className="skip" href="#content">Skip to the content</a>
        <TopBar />
        <RouteChange>
          <Switch>
            <Route path="/"><JobsPage /></Route>
            <Route path="/new"><NewJobPage /></Route>
            <Route path="/cluster/:tab?">{({ tab }) => <ClusterPage tab={tab} />}</Route>
            <Route path="/compare"><ComparePage /></Route>
            <Route path="/secrets"><SecretsPage /></Route>
            <Route path="/models"><LoadedPart><ModelsPage /></LoadedPart></Route>
            <Route path="/models/:name">{({ name }) => <LoadedPart key={name}><ModelPage name={idOf(name)} /></LoadedPart>}</Route>
            <Route path="/sweeps"><LoadedPart><SweepsPage /></LoadedPart></Route>
            <Route path="/sweeps/:id">{({ id }) => <LoadedPart key={id}><SweepPage id={idOf(id)} /></LoadedPart>}</Route>
            <Route path="/jobs/:id/:tab?">{({ id, tab }) => <JobPage key={id} id={idOf(id)} tab={tab} />}</Route>
            <Route><NotFoundPage /></Route>
          </Switch>
        </RouteChange>
      </SignedIn></AddressRouter>
    </QueryClientProvider>
  );
}
