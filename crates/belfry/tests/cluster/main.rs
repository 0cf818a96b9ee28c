//! Processes that share a store, as their users run them: real PostgreSQL, RabbitMQ and NATS, counted at a real provider.
#![cfg(test)]

mod bad_start;
mod delivery;
mod events;
mod feed;
mod keys;
mod operations;
mod pausing;
mod quotas;
mod receiver;
mod registration;
mod reload;
mod sources;
mod support;
mod traces;
