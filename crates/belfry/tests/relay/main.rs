//! `belfry relay` between real servers, with a store and without: killed and started again at seeded moments, its target restarted, told
//! to end, refused.
//!
//! `BELFRY_RELAY_SEEDS=20` passes so many seeds over all pairs (`scripts/relay-kill-test.sh`).

#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod accounted;
mod command;
mod kill;
mod own_server;
mod systems;
