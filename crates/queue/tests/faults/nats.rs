//! Behind NATS JetStream.

use async_nats::jetstream;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use flow::Clock;
use notification::{Priority, limits};
use queue::broker::limits::TICKET_ANSWER_WAIT;
use queue::{Broker, BrokerOptions, QueueError, nats};
use testbed::Nats;

use crate::{
    Server, becomes, cases, complains, has_failed, has_room, options, publish, random, soon,
    take_one, ticket,
};

impl Server for Nats {
    fn open(options: &BrokerOptions) -> Result<Broker, QueueError> {
        nats::open(options, Clock::system(), random())
    }

    fn start() -> Self {
        Self::start().unwrap()
    }

    fn url(&self) -> String {
        Self::url(self)
    }

    fn kill(&mut self) {
        Self::kill(self).unwrap();
    }

    fn start_again(&mut self) {
        Self::start_again(self).unwrap();
    }

    fn wipe(&mut self) {
        Self::wipe(self).unwrap();
    }

    async fn intrude(url: &str, prefix: &str, priority: Priority, body: &[u8]) {
        let jetstream = other_program(url).await;
        let publish = jetstream.publish(format!("{prefix}.{priority}"), body.to_vec().into());
        publish.await.unwrap().await.unwrap();
    }

    async fn waiting(url: &str, prefix: &str, priority: Priority) -> u64 {
        let stream = other_program(url).await.get_stream(prefix).await.unwrap();
        let consumer = stream.consumer_info(priority.as_str()).await.unwrap();
        consumer.num_pending + consumer.num_ack_pending as u64
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_and_comes() {
    cases::a_broker_that_goes_and_comes::<Nats>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_no_tickets_are_terminated() {
    cases::messages_that_are_no_tickets::<Nats>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full() {
    cases::a_queue_that_is_full::<Nats>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_half_open() {
    cases::a_link_that_is_half_open::<Nats>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still() {
    cases::a_broker_that_stands_still::<Nats>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_leaves() {
    cases::a_consumer_that_leaves::<Nats>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_is_given_back_rests_before_it_comes_again() {
    let clock = Clock::system();
    let begun = clock.monotonic();
    let broker = nats::open(&options(&shared()), clock, random()).unwrap();
    cases::a_ticket_that_is_always_given_back(&broker, 3).await;
    assert!((clock.monotonic() - begun).as_millis() >= 900, "the third time comes later");
    soon("drain", broker.drain()).await;
}

/// A held ticket is reported to the server again and again, so that no other consumer gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_is_held_for_long_stays_with_its_holder() {
    let options = options(&shared());
    let holder = nats::open(&options, Clock::system(), random()).unwrap();
    becomes(&holder, true).await;
    assert_eq!(publish(&holder, vec![ticket(1, Priority::Normal)]).await, [true]);
    let held = soon("receive", holder.consumer().receive(Priority::Bulk, 1)).await;
    let other = nats::open(&options, Clock::system(), random()).unwrap();
    becomes(&other, true).await;
    let wait = TICKET_ANSWER_WAIT.mul_f64(1.3);
    let consumer = other.consumer();
    let second = tokio::time::timeout(wait, consumer.receive(Priority::Bulk, 1)).await;
    assert!(second.is_err(), "another got it as well");
    holder.close();
    drop(held);
    assert_eq!(take_one(&other).await, 1);
    soon("drain", holder.drain()).await;
    soon("drain", other.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_deleted_comes_back() {
    let options = options(&shared());
    let broker = nats::open(&options, Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    other_program(&options.url).await.delete_stream(&options.prefix).await.unwrap();
    let mut capacity = broker.publisher().capacity();
    soon("it goes on", async {
        while publish(&broker, vec![ticket(1, Priority::Bulk)]).await != [true] {
            capacity.wait_for(Option::is_some).await.unwrap();
        }
    })
    .await;
    assert_eq!(take_one(&broker).await, 1);
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_said_with_what_to_do() {
    let url = shared();
    let wrong = url.replace("a-password", "secret");
    let check = async |url: &str, words: &[&str]| {
        let broker = nats::open(&options(url), Clock::system(), random()).unwrap();
        complains(&broker, words).await;
    };
    check(&wrong, &["refuses this user", "correct the URL"]).await;
    check("nats://belfry:secret@127.0.0.1:9", &["cannot reach", "127.0.0.1:9"]).await;
    check("nats://belfry:secret@no-such-host.invalid", &["cannot reach", "no-such-host"]).await;
    check(&format!("{url}?credentials=/nowhere"), &["/nowhere", "correct the file"]).await;

    let options = options(&url);
    let jetstream = other_program(&url).await;
    let config = Config { name: options.prefix.clone(), ..Config::default() };
    jetstream.create_stream(config).await.unwrap();
    let broker = nats::open(&options, Clock::system(), random()).unwrap();
    complains(&broker, &["other subjects", "delete it", "another prefix"]).await;
    jetstream.delete_stream(&options.prefix).await.unwrap();
    has_room(&broker, Some(Priority::Bulk)).await;
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_drops_what_it_confirmed_is_refused() {
    let url = shared();
    let jetstream = other_program(&url).await;
    let check = async |change: &dyn Fn(&mut Config), words: &[&str]| {
        let options = options(&url);
        let mut config = stream_of(&options.prefix);
        change(&mut config);
        jetstream.create_stream(config).await.unwrap();
        let broker = nats::open(&options, Clock::system(), random()).unwrap();
        complains(&broker, words).await;
    };
    check(&|config| config.subjects = vec![format!("{}.*", config.name)], &[".normal", ".bulk"])
        .await;
    check(&|config| config.max_messages = 100, &["drops old", "\"new\""]).await;
    check(&|config| config.max_bytes = 10_000, &["drops old", "\"new\""]).await;
    check(&|config| config.max_messages_per_subject = 9, &["drops old", "per subject"]).await;
    let only_new = |config: &mut Config| {
        (config.max_messages_per_subject, config.discard) = (9, DiscardPolicy::New);
    };
    check(&only_new, &["drops old", "per subject"]).await;
    let short = |config: &mut Config| {
        config.max_age = limits::TICKET_LEASE / 2;
        config.duplicate_window = config.max_age;
    };
    check(&short, &["after 15 s", "30 s, or none"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_or_jetstream_that_is_missing_is_said_with_what_to_do() {
    let settings = r#"
        authorization: {}
        accounts: {
            APP: { jetstream: enabled, users: [
                { user: belfry, password: a-password },
                { user: poor, password: secret, permissions: { publish: "nothing", subscribe: ">" } } ] }
            PLAIN: { users: [{ user: plain, password: secret }] }
        }"#;
    let server = tokio::task::spawn_blocking(|| Nats::start_with(settings)).await.unwrap().unwrap();
    let check = async |user: &str, words: &[&str]| {
        let url = server.url().replace("belfry:a-password", user);
        let broker = nats::open(&options(&url), Clock::system(), random()).unwrap();
        complains(&broker, words).await;
    };
    check("poor:secret", &["denies a right", "$JS.API"]).await;
    check("plain:secret", &["JetStream", "account"]).await;
    let broker = nats::open(&options(&server.url()), Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_may_not_ask_or_acknowledge_says_so() {
    let settings = r#"
        authorization: {}
        accounts: {
            APP: { jetstream: enabled, users: [
                { user: belfry, password: a-password },
                { user: mute, password: secret, permissions: { publish: { deny: "$JS.API.CONSUMER.MSG.NEXT.>" } } },
                { user: rude, password: secret, permissions: { publish: { deny: "$JS.ACK.>" } } } ] }
        }"#;
    let server = tokio::task::spawn_blocking(|| Nats::start_with(settings)).await.unwrap().unwrap();
    let open = |user: &str| {
        let url = server.url().replace("belfry:a-password", user);
        nats::open(&options(&url), Clock::system(), random()).unwrap()
    };
    let mute = open("mute:secret");
    has_failed(&mute, &["denies a right", "MSG.NEXT"]).await;
    let rude = open("rude:secret");
    becomes(&rude, true).await;
    assert_eq!(publish(&rude, vec![ticket(1, Priority::Normal)]).await, [true]);
    take_one(&rude).await;
    has_failed(&rude, &["denies a right", "$JS.ACK."]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_smaller_than_usual_is_full_and_has_room_again() {
    let options = BrokerOptions { consume: false, ..options(&shared()) };
    let mut config = stream_of(&options.prefix);
    (config.max_messages_per_subject, config.discard) = (8, DiscardPolicy::New);
    config.discard_new_per_subject = true;
    other_program(&options.url).await.create_stream(config).await.unwrap();
    let broker = nats::open(&options, Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    let tickets = (0..20).map(|number| ticket(number, Priority::Bulk)).collect();
    let taken = publish(&broker, tickets).await.into_iter().filter(|taken| *taken).count();
    assert_eq!(taken, 8);
    has_room(&broker, Some(Priority::Normal)).await;
    let consumer =
        nats::open(&BrokerOptions { consume: true, ..options }, Clock::system(), random());
    let consumer = consumer.unwrap();
    for _ in 0..taken {
        take_one(&consumer).await;
    }
    has_room(&broker, Some(Priority::Bulk)).await;
    assert_eq!(broker.trouble(), None, "full is no trouble");
    soon("drain", consumer.drain()).await;
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_takes_nothing_is_a_trouble() {
    let options = BrokerOptions { consume: false, ..options(&shared()) };
    let mut config = stream_of(&options.prefix);
    (config.max_bytes, config.discard) = (1, DiscardPolicy::New);
    other_program(&options.url).await.create_stream(config).await.unwrap();
    let broker = nats::open(&options, Clock::system(), random()).unwrap();
    let mut capacity = broker.publisher().capacity();
    soon("trouble", async {
        while broker.failures().borrow().count == 0 {
            assert_eq!(publish(&broker, vec![ticket(1, Priority::Bulk)]).await, [false]);
            capacity.wait_for(|capacity| *capacity == Some(Priority::Bulk)).await.unwrap();
        }
    })
    .await;
    has_failed(&broker, &["takes no tickets", "bytes"]).await;
}

/// A stream that an operator may create first; without any limit.
fn stream_of(prefix: &str) -> Config {
    Config {
        name: prefix.to_owned(),
        subjects: Priority::ALL.iter().map(|priority| format!("{prefix}.{priority}")).collect(),
        retention: RetentionPolicy::WorkQueue,
        ..Config::default()
    }
}

fn shared() -> String {
    testbed::nats::shared_url().unwrap()
}

async fn other_program(url: &str) -> jetstream::Context {
    let (user, rest) = url.trim_start_matches("nats://").split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap();
    let options = async_nats::ConnectOptions::with_user_and_password(user.into(), password.into());
    jetstream::new(options.connect(rest).await.unwrap())
}
