//! The binary from outside: what it says, what arrives at the engine, how it ends.
#![cfg(test)]

mod broadcasts;
mod colours;
mod credential;
mod first_message;
mod first_run;
mod health;
mod import;
mod keys;
mod others;
mod reload;
mod remote;
mod requeue;
mod reschedule;
mod resolve;
mod served;
mod shell;
mod support;
