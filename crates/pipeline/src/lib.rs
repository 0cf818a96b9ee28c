//! The stages, in the order data flows: [`ingest`], then dispatch, deliver and settle. Stages do not know
//! each other; they meet in the store, the queue and the channels.

pub mod channels;
pub mod ingest;

pub use channels::Channels;
