"""What a job is and what happens to it: spec, states, store, queue, dispatcher."""
