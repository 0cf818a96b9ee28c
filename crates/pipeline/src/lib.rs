//! The stages, in the order data flows: [`ingest`], then dispatch, collect (only behind a broker), deliver and settle. Stages do not know
//! each other; they meet in the store, the queue and the channels.

pub mod channels;
pub mod collect;
pub mod deliver;
pub mod dispatch;
pub mod ingest;
pub mod metrics;
pub mod report;
pub mod settle;
pub mod spans;

pub use channel::timestamp;
pub use channels::Channels;
pub use collect::Collect;
pub use deliver::{
    ChannelLoad, Deliver, DestinationLimits, LaneQuotas, LoadMetrics, QuotaNumbers, QuotaShares,
    ThreadAffinity,
};
pub use dispatch::Dispatch;
pub use ingest::Intake;
pub use metrics::Metrics;
pub use settle::{RetryPolicy, Settle};
