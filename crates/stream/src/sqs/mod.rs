//! Queues of Amazon SQS, standard and FIFO, as sources and targets.
//!
//! A message that was fetched is invisible to others for a while, which is extended for as long as it is held
//! ([`SqsSource`]). SQS ends that after twelve hours. Neither a standard queue nor a receipt that was late makes exactly-once: a
//! message may come again, with the same identifier.

mod held;
mod settings;
mod source;
mod target;

pub use settings::SqsSettings;
pub use source::SqsSource;
pub use target::{SqsTarget, SqsTargets};
