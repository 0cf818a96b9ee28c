//! Secrets in a running engine: that none is seen, and that they change while it runs.
#![cfg(test)]

mod canaries;
mod providers;
mod reload;
mod streams;
mod support;
mod world;
