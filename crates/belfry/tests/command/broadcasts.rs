//! `belfry broadcasts`, from outside.

use notification::{BroadcastId, Content, Guarantee, Labels, Pause, Priority, Scope, Timestamp};
use serde_json::{Value, json};
use store::sqlite::{Options, Sqlite, Synchronous};
use store::{BroadcastDraft, BroadcastOpened, Ingest as _, Operations as _, RecipientGroup};

use crate::support::Workspace;

/// 2027-01-15T08:00:00Z.
const START: i64 = 1_800_000_000_000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// Has a broadcast to so many accepted, so many milliseconds after the start.
async fn add(store: &Sqlite, tenant: &str, channel: &str, recipients: usize, millis: i64) {
    let draft = BroadcastDraft {
        tenant: tenant.parse().unwrap(),
        channel: channel.parse().unwrap(),
        priority: Priority::Bulk,
        guarantee: Guarantee::AtLeastOnce,
        due_at: at(60_000),
        expires_at: (recipients > 1).then(|| at(120_000)),
        content: Content::default(),
        idempotency: None,
        labels: Labels::default(),
    };
    let opened = store.open_broadcast(draft, at(millis)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    let recipients = (0..recipients).map(|number| number.to_string().as_str().into()).collect();
    let group = RecipientGroup { recipients, ..RecipientGroup::new("here".into()) };
    store.add_recipients(id, vec![group], at(millis)).await.unwrap();
    store.seal_broadcast(id, at(millis)).await.unwrap();
}

/// A store with three broadcasts of the tenant `default`, of which the second is paused, and one of another.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    let options = Options { synchronous: Synchronous::Normal, ..Options::new(1) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, _) = Sqlite::open(&workspace.path("data"), options, at(0)).unwrap();
        add(&store, "default", "ios", 1, 0).await;
        add(&store, "default", "hooks", 3, 1_000).await;
        add(&store, "default", "ios", 2, 2_000).await;
        add(&store, "acme", "ios", 4, 3_000).await;
        let (tenant, scope) = ("default".parse().unwrap(), Scope::Broadcast(BroadcastId(2)));
        store.pause(Pause { tenant, scope, since: at(5_000) }).await.unwrap();
    });
    workspace
}

#[test]
fn broadcasts_are_listed_a_line_each() {
    let workspace = workspace();
    let ended = workspace.belfry(&["broadcasts"]);
    let lines = [
        "bc_3: 2 notifications by ios, bulk, accepted 2027-01-15T08:00:02.000Z, due 2027-01-15T08:01:00.000Z, \
         expires 2027-01-15T08:02:00.000Z",
        "bc_2: 3 notifications by hooks, bulk, accepted 2027-01-15T08:00:01.000Z, due 2027-01-15T08:01:00.000Z, \
         expires 2027-01-15T08:02:00.000Z, paused since 2027-01-15T08:00:05.000Z",
        "bc_1: 1 notification by ios, bulk, accepted 2027-01-15T08:00:00.000Z, due 2027-01-15T08:01:00.000Z",
    ];
    assert_eq!((ended.code, ended.err.as_slice()), (0, &[][..]), "{ended:?}");
    assert_eq!(ended.out.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn a_list_of_broadcasts_is_filtered_and_says_where_it_goes_on() {
    let workspace = workspace();
    let ids = |arguments: &[&str]| {
        let ended = workspace.belfry(&[&["broadcasts", "--json"], arguments].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        let line = |line| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
        (ended.out.lines().map(line).collect::<Vec<_>>(), ended.err)
    };
    let on = vec!["belfry: go on with --after bc_2".to_owned()];
    assert_eq!(ids(&["--oldest", "--limit", "2"]), (vec![json!("bc_1"), json!("bc_2")], on));
    let rest = ids(&["--oldest", "--limit", "2", "--after", "bc_2"]);
    assert_eq!(rest, (vec![json!("bc_3")], vec![]));
    assert_eq!(ids(&["--tenant", "acme"]).0, [json!("bc_4")]);
    assert_eq!(ids(&["--channel", "ios"]).0, [json!("bc_3"), json!("bc_1")]);
    let within = ["--since", "2027-01-15T08:00:01Z", "--until", "2027-01-15T08:00:02Z"];
    assert_eq!(ids(&within).0, [json!("bc_2")]);
    let ended = workspace.belfry(&["broadcasts", "--oldest", "--newest"]);
    assert_eq!(ended.code, 2);
}
