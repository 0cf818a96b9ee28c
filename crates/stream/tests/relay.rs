//! The relay between streams in memory, under paused time: what is bounded, what is repeated, what keeps its order, and how it ends.

#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use flow::Clock;
use stream::double::StreamDouble;
use stream::record_map::Unchanged;
use stream::relay::{
    RelayBuffer, RelayCounts, RelayEnd, RelayError, RelayGuarantee, RelayOptions, StreamRelay,
};
use stream::{BatchLimits, PutError, Record, StreamError, Target};
use tokio::sync::watch;
use tokio::time::sleep;

struct Rig {
    from: StreamDouble,
    to: StreamDouble,
    dead: StreamDouble,
    counts: Arc<RelayCounts>,
    options: RelayOptions,
    has_dead_letters: bool,
    seed: u64,
}

const LIMITS: BatchLimits = BatchLimits { records: 10, bytes: 4_096, record_bytes: 1_024 };
const IDLE: Duration = Duration::from_secs(5);

impl Rig {
    fn new() -> Self {
        let options = RelayOptions {
            buffer: RelayBuffer { messages: 40, bytes: 1 << 20 },
            guarantee: RelayGuarantee::AtLeastOnce,
            until_empty: Some(IDLE),
            patience: Duration::from_secs(30),
        };
        Self {
            from: StreamDouble::default(),
            to: StreamDouble::new(LIMITS),
            dead: StreamDouble::default(),
            counts: Arc::default(),
            options,
            has_dead_letters: false,
            seed: 1,
        }
    }

    fn relay(&self) -> StreamRelay {
        StreamRelay {
            source: Arc::new(self.from.source()),
            target: Arc::new(self.to.target()),
            dead_letters: self.has_dead_letters.then(|| Arc::new(self.dead.target()) as Arc<_>),
            map: Arc::new(Unchanged),
            options: self.options.clone(),
            counts: Arc::clone(&self.counts),
            clock: Clock::starting_at(Duration::from_hours(500_000)),
            random: fastrand::Rng::with_seed(self.seed),
        }
    }

    fn push(&self, count: usize) {
        for number in 0..count {
            self.from.push(None, Some(Bytes::from(format!("{number}"))));
        }
    }

    async fn run(&self) -> Result<RelayEnd, RelayError> {
        // Kept, so that it is not asked to end.
        let (_stop, stopping) = watch::channel(false);
        self.relay().run(stopping).await
    }

    /// The bodies that the target has, as text.
    fn arrived(&self) -> Vec<String> {
        let text = |body: Bytes| String::from_utf8(body.to_vec()).unwrap();
        self.to.waiting().into_iter().map(text).collect()
    }

    fn count(&self, counter: impl Fn(&RelayCounts) -> &std::sync::atomic::AtomicU64) -> u64 {
        counter(&self.counts).load(Ordering::Relaxed)
    }
}

fn not_taken() -> PutError {
    PutError::NotTaken("away".to_owned())
}

fn throttled(after: Option<Duration>) -> PutError {
    PutError::Throttled { after, why: "slow down".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn all_is_put_in_batches_and_acknowledged_after() {
    let rig = Rig::new();
    rig.push(200);
    let begun = Clock::system().monotonic();
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived(), (0..200).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(rig.from.acknowledged().len(), 200);
    assert!(rig.to.puts().len() <= 30, "{} puts", rig.to.puts().len());
    assert!(begun.elapsed() >= IDLE, "it waited for more");
    assert_eq!(rig.count(|counts| &counts.put), 200);
    assert_eq!(rig.count(|counts| &counts.held), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_beyond_the_buffer_while_the_target_does_not_answer() {
    let rig = Rig::new();
    rig.push(200);
    rig.to.stall(true);
    let watching = async {
        sleep(Duration::from_mins(1)).await;
        let (waiting, fetches) = (rig.from.waiting().len(), rig.from.fetches());
        assert_eq!(waiting, 160, "the buffer is full");
        sleep(Duration::from_mins(10)).await;
        assert_eq!((rig.from.waiting().len(), rig.from.fetches()), (waiting, fetches));
        assert_eq!(rig.from.acknowledged().len(), 0);
        rig.to.stall(false);
    };
    let (ended, ()) = tokio::join!(rig.run(), watching);
    assert_eq!(ended, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived().len(), 200);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_is_put_again_alone() {
    let rig = Rig::new();
    rig.push(10);
    rig.to.fail_puts([None, Some(not_taken()), None, Some(throttled(None)), None]);
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    let mut arrived = rig.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    let sizes: Vec<usize> = rig.to.puts().iter().map(Vec::len).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 12, "{sizes:?}");
    assert_eq!(rig.from.acknowledged().len(), 10);
    assert_eq!(rig.count(|counts| &counts.repeated), 2);
    assert_eq!(rig.count(|counts| &counts.throttled), 1);
    assert_eq!(rig.count(|counts| &counts.doubtful), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_target_asks_for_is_kept() {
    let rig = Rig::new();
    rig.push(1);
    let asked = Duration::from_secs(30);
    rig.to.fail_puts([Some(throttled(Some(asked)))]);
    let begun = Clock::system().monotonic();
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    assert!(begun.elapsed() >= asked);
    assert_eq!(rig.to.puts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_away_is_asked_less_and_less_often() {
    let rig = Rig::new();
    rig.push(40);
    rig.to.fail_puts(std::iter::repeat_n(Some(not_taken()), 300));
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived().len(), 40);
    let puts = rig.to.puts().len();
    assert!(puts < 50, "{puts} puts");
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_taken_is_put_again_and_counted() {
    let rig = Rig::new();
    rig.push(3);
    rig.to.fail_puts([None, Some(PutError::Unknown("lost".to_owned()))]);
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived(), ["0", "1", "2", "1"]);
    assert_eq!(rig.count(|counts| &counts.doubtful), 1);
    assert_eq!(rig.from.acknowledged().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn at_most_once_acknowledges_first_and_repeats_nothing_that_may_have_been_taken() {
    let mut rig = Rig::new();
    rig.options.guarantee = RelayGuarantee::AtMostOnce;
    rig.has_dead_letters = true;
    rig.push(4);
    rig.from.fail_acknowledgements([StreamError::Unavailable("away".to_owned())]);
    let unknown = Some(PutError::Unknown("lost".to_owned()));
    rig.to.fail_puts([Some(not_taken()), unknown, None]);
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    // 0 was not acknowledged at first and comes again; 1 was certainly not taken; 2 was taken, as it happens.
    let mut arrived = rig.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, ["0", "1", "2", "3"]);
    let letters: Vec<Bytes> = rig.dead.waiting();
    assert_eq!(letters.len(), 1);
    let letter = String::from_utf8(letters[0].to_vec()).unwrap();
    assert!(letter.contains("may have been taken") && letter.contains("\"m2\""), "{letter}");
    assert_eq!(rig.from.acknowledged().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn at_most_once_still_puts_what_it_acknowledged_when_it_is_asked_to_end() {
    let mut rig = Rig::new();
    rig.options =
        RelayOptions { guarantee: RelayGuarantee::AtMostOnce, until_empty: None, ..rig.options };
    rig.has_dead_letters = true;
    rig.push(60);
    rig.to.stall(true);
    let (stop, stopping) = watch::channel(false);
    let stopping_it = async {
        sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        sleep(Duration::from_secs(1)).await;
        rig.to.stall(false);
    };
    let (ended, ()) = tokio::join!(rig.relay().run(stopping), stopping_it);
    assert_eq!(ended, Ok(RelayEnd::Stopped));
    assert_eq!(rig.arrived().len(), rig.from.acknowledged().len());
    assert_eq!(rig.arrived().len() + rig.from.waiting().len(), 60);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_goes_to_the_dead_letters_and_holds_up_nothing() {
    let mut rig = Rig::new();
    rig.has_dead_letters = true;
    rig.push(20);
    rig.from.push(Some("k"), None);
    rig.from.push(None, Some(Bytes::from(vec![0xff; 2_000])));
    let refused = Some(PutError::Refused("bad".to_owned()));
    rig.to.fail_puts([None, refused]);
    // The dead letters are away at first.
    rig.dead.fail_puts([Some(not_taken()), Some(not_taken())]);
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived().len(), 19);
    assert_eq!(rig.dead.waiting().len(), 3);
    assert_eq!(rig.count(|counts| &counts.dead), 3);
    assert_eq!(rig.from.acknowledged().len(), 22);
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_the_first_that_is_refused_ends_it_and_nothing_is_lost() {
    let rig = Rig::new();
    rig.push(100);
    let refused = Some(PutError::Refused("bad".to_owned()));
    rig.to.fail_puts([None, refused]);
    let ended = rig.run().await;
    assert!(matches!(&ended, Err(RelayError::Refused { id, .. }) if id == "m1"), "{ended:?}");
    let (taken, left) = (rig.arrived(), rig.from.waiting());
    assert_eq!(taken.len() + left.len(), 100);
    assert_eq!(rig.from.acknowledged().len(), taken.len());
    assert!(left.contains(&Bytes::from_static(b"1")));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_refuse_end_it_and_nothing_is_lost() {
    let mut rig = Rig::new();
    rig.has_dead_letters = true;
    rig.push(50);
    let refused = || Some(PutError::Refused("bad".to_owned()));
    rig.to.fail_puts([refused()]);
    rig.dead.fail_puts([refused()]);
    let ended = rig.run().await;
    assert!(matches!(&ended, Err(RelayError::Letter { id, .. }) if id == "m0"), "{ended:?}");
    assert_eq!(rig.arrived().len() + rig.from.waiting().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn when_it_is_asked_to_end_what_is_under_way_is_finished_and_the_rest_given_back() {
    let mut rig = Rig::new();
    rig.options.until_empty = None;
    rig.push(100);
    rig.to.stall(true);
    let (stop, stopping) = watch::channel(false);
    let stopping_it = async {
        sleep(Duration::from_secs(1)).await;
        stop.send_replace(true);
        sleep(Duration::from_secs(1)).await;
        rig.to.stall(false);
    };
    let (ended, ()) = tokio::join!(rig.relay().run(stopping), stopping_it);
    assert_eq!(ended, Ok(RelayEnd::Stopped));
    let taken = rig.arrived().len();
    assert!(taken > 0 && taken <= 40, "{taken}");
    assert_eq!(rig.from.acknowledged().len(), taken);
    assert_eq!(rig.from.waiting().len(), 100 - taken);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_away_is_waited_for_once_it_was_there() {
    let away = || StreamError::Unavailable("away".to_owned());
    let rig = Rig::new();
    rig.push(1);
    let rig_later = async {
        sleep(Duration::from_secs(2)).await;
        rig.from.fail_fetches((0..20).map(|_| away()));
        rig.push(1);
    };
    let (ended, ()) = tokio::join!(rig.run(), rig_later);
    assert_eq!(ended, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_never_there_or_refuses_ends_it() {
    let away = || StreamError::Unavailable("away".to_owned());
    let rig = Rig::new();
    rig.from.fail_fetches((0..1_000).map(|_| away()));
    assert_eq!(rig.run().await, Err(RelayError::Unreachable(away())));
    let rig = Rig::new();
    let refused = StreamError::Refused("no such queue".to_owned());
    rig.from.fail_fetches([refused.clone()]);
    assert_eq!(rig.run().await, Err(RelayError::Source(refused)));
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_fails_has_its_message_come_again() {
    let rig = Rig::new();
    rig.push(3);
    rig.from.fail_acknowledgements([StreamError::Unavailable("away".to_owned())]);
    assert_eq!(rig.run().await, Ok(RelayEnd::Empty));
    assert_eq!(rig.arrived(), ["0", "1", "2", "0"]);
    assert_eq!(rig.count(|counts| &counts.unacknowledged), 1);
}

/// A target that fails at random, and takes none of a key behind one of it that it did not take: what targets with an order promise.
#[derive(Debug)]
struct FailingTarget {
    to: StreamDouble,
    random: Mutex<fastrand::Rng>,
}

#[async_trait]
impl Target for FailingTarget {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn keeps_order(&self) -> bool {
        true
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        let wait = Duration::from_millis(self.random.lock().unwrap().u64(0..500));
        sleep(wait).await;
        let mut answers = Vec::new();
        let mut stopped = BTreeSet::new();
        for record in records {
            let failure = match self.random.lock().unwrap().u8(0..10) {
                _ if stopped.contains(&record.key) => Some(not_taken()),
                0 => Some(not_taken()),
                1 => Some(throttled(Some(wait))),
                2 => Some(PutError::Unknown("lost".to_owned())),
                _ => None,
            };
            let is_taken = match &failure {
                None => true,
                Some(PutError::Unknown(_)) => self.random.lock().unwrap().bool(),
                Some(_) => false,
            };
            if is_taken {
                self.to.target().put(std::slice::from_ref(record)).await;
            }
            if failure.is_some() {
                stopped.insert(record.key.clone());
            }
            answers.push(failure.map_or(Ok(()), Err));
        }
        answers
    }

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_nothing_is_lost_and_keys_keep_their_order() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rig = Rig { seed, ..Rig::new() };
        let mut sent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for number in 0..120 {
            let key = random.choice(KEYS).unwrap();
            let body = format!("{key} {number}");
            sent.entry(key).or_default().push(body.clone());
            rig.from.push(Some(key), Some(body.into()));
        }
        let target = FailingTarget { to: rig.to.clone(), random: Mutex::new(random) };
        let relay = StreamRelay { target: Arc::new(target), ..rig.relay() };
        let (_stop, stopping) = watch::channel(false);
        assert_eq!(relay.run(stopping).await, Ok(RelayEnd::Empty), "seed {seed}");
        let arrived = rig.arrived();
        let doubtful = rig.count(|counts| &counts.doubtful);
        assert!(arrived.len() as u64 <= 120 + doubtful, "seed {seed}");
        for (key, bodies) in sent {
            let mut of_key: Vec<&String> =
                arrived.iter().filter(|body| body.starts_with(key)).collect();
            // One that may have been taken comes again before the next of its key.
            of_key.dedup();
            assert!(of_key.into_iter().eq(&bodies), "seed {seed}");
        }
        assert_eq!(rig.from.acknowledged().len(), 120, "seed {seed}");
    }
}
