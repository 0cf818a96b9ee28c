//! The faults of one engine with its own store: of its providers, its disk, its certificates, its configuration, and its death.

use std::path::Path;
use std::time::Duration;

use bench::workload::token;
use bench::{JournalTail, SimulatorProcess, SimulatorReady};
use flow::Clock;
use notification::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use testbed::Proxy;
use testbed::disk::{DiskNamespace, PartEnd, SmallDisk};

use crate::process::Process;
use crate::timeline::Timeline;

pub(crate) const ALERTS: &[&str] = &[
    "BelfryCertificateEnds",
    "BelfryClientCertificateEnds",
    "BelfryDead",
    "BelfryDown",
    "BelfryInDoubt",
    "BelfryLate",
    "BelfryParked",
    "BelfryProviderDown",
    "BelfryRefusals",
    "BelfryReloadRefused",
    "BelfryStoreFillsDisk",
    "BelfryTokenNotRenewed",
    "BelfryUnavailable",
];

/// Of the file system, MiB. It lies in memory and takes what is written to it.
const DISK_MIB: u64 = 12_288;
/// The share of recipients that the providers find gone.
const GONE: f64 = 0.05;
/// A recipient whose requests are not answered.
const SILENT: u64 = 999_983;
const DAY: Duration = Duration::from_hours(24);
/// Longer than any rule looks back, but for the usual share of refusals.
const LONG: usize = 90;

/// An engine, its providers, and the links between them.
struct World {
    place: DiskNamespace,
    simulator: SimulatorProcess,
    /// To the provider of webhooks.
    hooks: Proxy,
    /// To where access tokens are got.
    tokens: Proxy,
    config: String,
    engine: Process,
    timeline: Timeline,
    /// Recipients that were used.
    used: u64,
}

#[test]
fn an_engine_by_itself_fires_an_alert_for_each_fault_and_none_otherwise() {
    let parts = [("alone::make_the_faults_of_an_engine", PartEnd::Passed)];
    SmallDisk::new(DISK_MIB).run(&parts).unwrap();
}

#[test]
#[ignore = "runs on the disk that the other test makes"]
fn make_the_faults_of_an_engine() {
    let mut world = World::start();
    world.ordinary_load();
    world.refusals();
    world.a_provider_is_away();
    world.retries_are_exhausted();
    world.it_is_killed_with_something_on_the_wire();
    world.a_channel_is_taken_out();
    world.a_configuration_is_refused();
    world.certificates_end();
    world.no_token_is_got();
    world.the_disk_fills();
    world.timeline.judge(ALERTS);
}

// === impl World ===

impl World {
    fn start() -> Self {
        let place = DiskNamespace::of_this_part().unwrap();
        let directory = place.directory().to_owned();
        let gone = GONE.to_string();
        let flags = [
            "--dead-tokens",
            &gone,
            "--fcm",
            "127.0.0.1:0",
            "--fcm-token-lifetime",
            "4s",
            "--silent-to",
            &token(SILENT),
        ];
        let flags = flags.map(str::to_owned);
        let simulator =
            SimulatorProcess::start(Path::new(env!("CARGO_BIN_EXE_belfry")), &directory, &flags)
                .unwrap();
        let hooks = Proxy::before(&format!("https://{}", simulator.ready.webhook)).unwrap();
        let fcm = simulator.ready.fcm.as_deref().unwrap();
        let tokens = Proxy::before(&format!("https://{fcm}/token")).unwrap();
        for name in ["server", "client"] {
            certify(&directory, name, 60 * DAY);
        }
        std::fs::write(directory.join("apns.p8"), KeyPair::generate().unwrap().serialize_pem())
            .unwrap();
        let config = configuration((&directory, &place.disk()), &simulator.ready, &tokens);
        let engine = Process::start(&directory, "serve", "engine", &config);
        let timeline = Timeline::new();
        Self { place, simulator, hooks, tokens, config, engine, timeline, used: 0 }
    }

    /// Things stay as they are.
    fn hold(&mut self, minutes: usize) {
        self.timeline.hold(minutes, &[self.engine.scrape()]);
    }

    /// Things stay as they are, and at the end of it these alerts are firing.
    fn phase(&mut self, phase: &'static str, minutes: usize, alerts: &[&'static str]) {
        self.timeline.phase(phase, minutes, &[self.engine.scrape()], alerts);
    }

    /// So many device tokens that the provider knows, or knows no more.
    fn tokens(&mut self, count: usize, is_gone: bool) -> Vec<String> {
        let mut tokens = Vec::new();
        while tokens.len() < count {
            let token = token(self.used);
            self.used += 1;
            if provider_sim::is_dead(&token, GONE) == is_gone {
                tokens.push(token);
            }
        }
        tokens
    }

    /// Sends `tokens` something by `ios`.
    fn push(&self, tokens: &[String]) {
        let to = |to| json!({ "channel": "ios", "to": to, "content": { "aps": {} } });
        self.engine.send(&tokens.iter().map(to).collect::<Vec<_>>());
    }

    /// Sends `count` webhooks by `channel`, due at `send_at`.
    fn call(&self, channel: &str, count: usize, send_at: Timestamp) {
        let to = format!("{}/hook", self.hooks.url());
        let one =
            json!({ "channel": channel, "to": to, "content": {}, "send_at": send_at.to_string() });
        self.engine.send(&vec![one; count]);
    }

    /// Sends `count` messages by `android`.
    fn message(&self, count: usize) {
        let content = json!({ "notification": { "title": "Noon" } });
        let one = json!({ "channel": "android", "to": "device", "content": content });
        self.engine.send(&vec![one; count]);
    }

    /// Waits until the attempts by `channel` that had this outcome are `count`, since the engine was started.
    fn until_outcome(&self, channel: &str, outcome: &str, count: f64) {
        self.engine.until(&outcomes(channel, outcome), |value| value >= count);
    }

    fn outcome(&self, channel: &str, outcome: &str) -> f64 {
        self.engine.value(&outcomes(channel, outcome)).unwrap()
    }

    /// Deliveries by three channels, some that are refused, and one that comes with the second attempt.
    fn ordinary_load(&mut self) {
        self.hold(10);
        let mut tokens = self.tokens(950, false);
        tokens.extend(self.tokens(50, true));
        self.push(&tokens);
        self.message(3);
        self.hooks.cut();
        self.call("hooks", 1, now());
        self.until_outcome("hooks", "deferred", 1.0);
        self.hooks.pass();
        self.until_outcome("hooks", "delivered", 1.0);
        self.until_outcome("android", "delivered", 3.0);
        self.until_outcome("ios", "delivered", 950.0);
        self.until_outcome("ios", "refused", 50.0);
        self.phase("under ordinary load", LONG, &[]);
    }

    fn refusals(&mut self) {
        let (good, gone) = (self.tokens(50, false), self.tokens(450, true));
        let before = self.outcome("ios", "refused");
        self.push(&[gone, good].concat());
        self.until_outcome("ios", "refused", before + 450.0);
        self.phase("after a burst of refusals", 4, &["BelfryRefusals"]);
        self.phase("long after a burst of refusals", LONG, &[]);
    }

    fn a_provider_is_away(&mut self) {
        self.hooks.cut();
        let tried = self.outcome("hooks", "deferred");
        self.call("hooks", 20, now());
        self.until_outcome("hooks", "deferred", tried + 20.0);
        self.hold(12);
        // Due for nearly as long as is taken. They wait for what is tried of the lane, a few at a time.
        self.call("hooks", 2_000, now().minus(Duration::from_secs(55)));
        self.engine.until("belfry_oldest_due_seconds", |seconds| seconds > 60.0);
        self.phase("while a provider is away", 12, &["BelfryLate", "BelfryProviderDown"]);
        self.hooks.pass();
        self.until_outcome("hooks", "delivered", 2_021.0);
        self.phase("with the provider back", LONG, &[]);
    }

    fn retries_are_exhausted(&mut self) {
        self.hooks.cut();
        // One: a lane that was never answered tries them one by one, and waits ever longer.
        self.call("brief", 1, now());
        self.engine.until("belfry_notifications{state=\"dead\"}", |dead| dead >= 1.0);
        self.phase("after one was given up", 10, &["BelfryDead"]);
        self.hooks.pass();
        self.phase("long after one was given up", LONG, &[]);
    }

    fn it_is_killed_with_something_on_the_wire(&mut self) {
        let before = self.requests();
        self.engine.send(&[json!({
            "channel": "ios", "to": token(SILENT), "content": { "aps": {} }, "guarantee": "at_most_once",
        })]);
        self.engine
            .eventually("it is on the wire", |_| Some(()).filter(|()| self.requests() > before));
        self.engine.kill();
        self.phase("while the engine is dead", 10, &["BelfryDown"]);
        self.engine.start_again();
        self.engine.until("belfry_notifications{state=\"in_doubt\"}", |doubt| doubt >= 1.0);
        self.phase("after a kill with something on the wire", 10, &["BelfryInDoubt"]);
        self.phase("long after the kill", LONG, &[]);
    }

    /// Requests that the providers have had.
    fn requests(&self) -> u64 {
        JournalTail::open(&self.simulator.ready.journal).unwrap().lines().unwrap()
    }

    fn a_channel_is_taken_out(&mut self) {
        self.call("brief", 2, now().plus(Duration::from_hours(1)));
        let without = self.config.replace("[channels.brief]", "[channels.other]");
        let without = without.replace("[channels.brief.retry]", "[channels.other.retry]");
        assert!(self.engine.reload(&without));
        self.engine.until("belfry_parked_notifications{channel=\"brief\"}", |parked| parked >= 2.0);
        self.phase(
            "while something waits for a channel that is not configured",
            10,
            &["BelfryParked"],
        );
        assert!(self.engine.reload(&self.config));
        self.phase("with the channel back", 10, &[]);
    }

    fn a_configuration_is_refused(&mut self) {
        assert!(!self.engine.reload("[delivery]\nsender = 1\n"));
        self.phase("with a configuration that was refused", 10, &["BelfryReloadRefused"]);
        assert!(self.engine.reload(&self.config));
        self.phase("with a good configuration", 10, &[]);
    }

    fn certificates_end(&mut self) {
        let directory = self.place.directory().to_owned();
        for (name, alert) in
            [("server", "BelfryCertificateEnds"), ("client", "BelfryClientCertificateEnds")]
        {
            certify(&directory, name, 3 * DAY);
            assert!(self.engine.reload(&self.config));
            self.phase("with a certificate that ends in three days", 10, &[alert]);
            certify(&directory, name, 60 * DAY);
            assert!(self.engine.reload(&self.config));
            self.phase("with a new certificate", 10, &[]);
        }
    }

    fn no_token_is_got(&mut self) {
        let before = self.outcome("android", "delivered");
        self.message(1);
        self.until_outcome("android", "delivered", before + 1.0);
        self.tokens.cut();
        let end =
            "belfry_credential_expiry_timestamp_seconds{channel=\"android\",what=\"access_token\"}";
        let wall = || Clock::system().wall().as_secs_f64();
        // It is shown in whole seconds.
        self.engine.until(end, |end| end + 1.0 < wall());
        self.phase("with a token that is past, and nothing to send", 30, &[]);
        self.message(3);
        let unsent = "belfry_attempts_total{channel=\"android\",code=\"unsent\"}";
        for attempts in [3.0, 4.0] {
            self.engine.until(unsent, |value| value >= attempts);
            self.hold(8);
        }
        self.phase("without a token for what is sent", 1, &["BelfryTokenNotRenewed"]);
        self.tokens.pass();
        self.until_outcome("android", "delivered", before + 4.0);
        self.phase("with a token again", LONG, &[]);
    }

    /// Has something written: the disk is looked at before, and otherwise once a minute.
    fn look_at_the_disk(&self) {
        self.engine.ask("POST /v1/pause?channel=brief");
        self.engine.ask("POST /v1/resume?channel=brief");
    }

    fn the_disk_fills(&mut self) {
        for hour in 1..=8 {
            self.place.leave(DISK_MIB - hour * 1_024).unwrap();
            self.hold(60);
        }
        self.phase("on a disk that will be full", 1, &["BelfryStoreFillsDisk"]);
        self.place.leave(64).unwrap();
        self.look_at_the_disk();
        self.engine.until("belfry_available{part=\"disk\"}", |available| available < 1.0);
        self.phase("on a full disk", 12, &["BelfryStoreFillsDisk", "BelfryUnavailable"]);
        self.place.leave(DISK_MIB).unwrap();
        self.look_at_the_disk();
        self.engine.until("belfry_available{part=\"disk\"}", |available| available > 0.0);
        self.phase("with room again", 7 * 60, &[]);
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix(Clock::system().wall())
}

fn outcomes(channel: &str, outcome: &str) -> String {
    format!("belfry_deliveries_total{{channel=\"{channel}\",outcome=\"{outcome}\"}}")
}

/// Makes a certificate that ends after `left`, and its key.
fn certify(directory: &Path, name: &str, left: Duration) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_after = std::time::SystemTime::UNIX_EPOCH
        .checked_add(Clock::system().wall() + left)
        .unwrap()
        .into();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    std::fs::write(directory.join(format!("{name}.pem")), certificate).unwrap();
    std::fs::write(directory.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
}

fn configuration(
    (directory, disk): (&Path, &Path),
    ready: &SimulatorReady,
    tokens: &Proxy,
) -> String {
    let file = |name: &str| directory.join(name).display().to_string();
    let SimulatorReady { apns, ca, fcm, fcm_service_account, .. } = ready;
    let hooks = format!(
        "kind = \"webhook\"\nsecrets = [\"whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE=\"]\n\
         allow_networks = [\"127.0.0.0/8\"]\nca_file = {ca:?}\n"
    );
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\
         [server.tls]\ncertificate_file = {server:?}\nkey_file = {server_key:?}\n\
         [server.operator]\nlisten = \"127.0.0.1:0\"\n\
         [store]\ndirectory = {store:?}\n\
         [channels.ios]\nkind = \"apns\"\nendpoint = \"https://{apns}\"\nca_file = {ca:?}\nkey_file = {key:?}\n\
         key_id = \"BELFRYKEY1\"\nteam_id = \"BELFRYTEAM\"\ntopic = \"org.belfry.test\"\n\
         [channels.android]\nkind = \"fcm\"\nendpoint = \"https://{fcm}\"\ntoken_uri = \"{tokens}\"\n\
         service_account_file = {fcm_service_account:?}\nca_file = {ca:?}\n\
         [channels.hooks]\n{hooks}\
         [[channels.hooks.endpoints]]\nurl = \"https://partner.example.com/\"\n\
         certificate_file = {client:?}\nkey_file = {client_key:?}\n\
         [channels.brief]\n{hooks}[channels.brief.retry]\nattempts = 2\nbase = \"50ms\"\n",
        server = file("server.pem"),
        server_key = file("server-key.pem"),
        client = file("client.pem"),
        client_key = file("client-key.pem"),
        key = file("apns.p8"),
        store = disk.join("store"),
        fcm = fcm.as_deref().unwrap(),
        tokens = tokens.url(),
    )
}
