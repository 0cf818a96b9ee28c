//! Recipients that must not be tried again.

use notification::{ByteString, Disposition, State};

use super::support::{Shape, at, claim_all, claim_one, find, indexes, name, part, settle_one};
use crate::{Store, Suppression};

fn suppression(recipient: &str, reason: &str) -> Suppression {
    Suppression {
        channel: name("channel"),
        recipient: recipient.into(),
        reason: reason.to_owned(),
        since: at(1),
    }
}

pub(super) async fn a_suppressed_recipient_is_not_sent_to(store: &dyn Store) {
    let elsewhere = Suppression { channel: name("other"), ..suppression("2", "another channel") };
    store.suppress(vec![suppression("1", "asked us"), elsewhere]).await.unwrap();
    let ids = Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 5).await;
    assert_eq!(indexes(&chunk), [0, 2]);
    let history = find(store, ids[1]).await;
    assert_eq!(history.state, State::Suppressed);
    assert_eq!((history.attempts[0].attempt, history.attempts[0].at), (0, at(5)));
    let alone = Shape { destination: "elsewhere", ..Shape::default() };
    store.ingest(vec![alone.draft("1")], at(0)).await.unwrap();
    assert!(claim_all(store, 5).await.is_empty());
    assert_eq!(store.totals().await.unwrap().suppressed, 2);
}

pub(super) async fn a_gone_recipient_joins_the_list(store: &dyn Store) {
    Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 0).await;
    let mut gone = part(&chunk, &[2], Disposition::Ended(State::Refused));
    gone.groups[0].suppress = true;
    gone.groups[0].detail = "Unregistered".into();
    settle_one(store, gone).await;
    let listed = store.suppressions(name("channel"), None, 9).await.unwrap();
    assert_eq!(listed, [Suppression { since: at(7), ..suppression("2", "Unregistered") }]);
    Shape { destination: "elsewhere", ..Shape::default() }.ingest(store, 3).await;
    assert_eq!(indexes(&claim_one(store, 0).await), [0, 1]);
}

pub(super) async fn the_list_is_kept_in_order_and_taken_back(store: &dyn Store) {
    let all = ["b", "a", "c"].map(|recipient| suppression(recipient, "first"));
    store.suppress(all.to_vec()).await.unwrap();
    store.suppress(vec![suppression("b", "second")]).await.unwrap();
    let first = store.suppressions(name("channel"), None, 2).await.unwrap();
    assert_eq!(first, [suppression("a", "first"), suppression("b", "first")]);
    let rest = store.suppressions(name("channel"), Some("b".into()), 2).await.unwrap();
    assert_eq!(rest, [suppression("c", "first")]);
    let recipients: Vec<ByteString> = vec!["a".into(), "x".into()];
    let removed = store.unsuppress(name("channel"), recipients).await.unwrap();
    assert_eq!(removed, [true, false]);
    let draft = Shape::default().draft("a");
    store.ingest(vec![draft], at(0)).await.unwrap();
    assert_eq!(claim_one(store, 0).await.deliveries.len(), 1);
}
