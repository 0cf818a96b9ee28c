//! The bounds of ingest alone. Bounds that other crates share stand in [`notification::limits`].

use std::time::Duration;

use notification::limits::PAYLOAD_BYTES;

/// Longest time ahead for which a notification may be scheduled.
pub const SCHEDULE_AHEAD: Duration = Duration::from_hours(366 * 24);
/// Levels of arrays and objects in a content: common JSON readers take as many.
pub const CONTENT_DEPTH: usize = 128;
/// Payload and options of a template, bytes: a mail that its readers' programs show whole (102 kB), and half of the largest
/// payload, so that there is room for the values put in.
pub const TEMPLATE_BYTES: usize = PAYLOAD_BYTES / 2;
/// Strings of a template that have tags.
pub const TEMPLATE_STRINGS: usize = 64;
/// Steps of the template engine for one recipient, shared out equally among the strings. A tag takes two or three, so this
/// is a mail with a list of a few hundred lines; it is a few milliseconds.
pub const TEMPLATE_STEPS: u64 = 50_000;
/// Steps times values among the variables (and every 16 bytes of them), of a template that compares values: a step may then
/// look at all of them. With more, there are fewer steps. Looking at a value takes up to 20 ns: 15 ms at worst, and room for
/// a list of 90 lines with two values each. A template that compares only with literals has all its steps.
pub const TEMPLATE_WORK: u64 = 800_000;
/// Values, or 16 bytes of text, that filters may look at for each step there is: 100,000 at most, which are a few milliseconds,
/// and five times the need of a list of 600 lines whose texts all pass a filter.
pub const TEMPLATE_UNITS: u64 = 2;
/// Parts that a filter may make of one text.
pub const TEMPLATE_PARTS: usize = 1_000;
/// Length of one tag of a template, bytes: the result of a tag is in memory for a moment, and is at most this many times as large
/// as the variables.
pub const TEMPLATE_TAG_BYTES: usize = 1024;
/// `{% elif %}` in one string: the engine's parser goes one deeper with each, and ten thousand are more than a stack holds.
pub const TEMPLATE_ELIFS: usize = 100;
/// Variables of one recipient, or of a whole broadcast, bytes.
pub const VARIABLES_BYTES: usize = 64 * 1024;
/// Fallbacks of a notification: a person has few addresses.
pub const FALLBACKS: usize = 3;
/// Threads that compile and render templates. One: however many callers need rendering, it takes no more than a core, and the
/// remaining ones deliver.
pub const RENDER_THREADS: usize = 1;
/// Pieces of work that may wait for these threads, of all tenants together; more is answered with 503. A piece takes some
/// milliseconds at worst, so the last one waits for a few seconds.
pub const RENDER_WAITING: usize = 512;
/// Pieces of work of one tenant that may wait; more is answered with 429. Every request has one at a time.
pub const RENDER_WAITING_OF_TENANT: usize = 64;

const _: () = assert!(RENDER_WAITING_OF_TENANT < RENDER_WAITING, "one tenant leaves room");
