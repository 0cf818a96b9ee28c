//! The trail of acts.

use std::time::Duration;

use notification::Timestamp;

use super::support::{at, name};
use crate::{ActBegun, ActEnded, ActFilter, ActPage, Retention, Store};

fn act(tenant: &str, key: Option<&str>, begun: Timestamp) -> ActBegun {
    ActBegun {
        at: begun,
        request: "5f1c".to_owned(),
        key: key.map(name),
        caller: name("ops"),
        tenant: name(tenant),
        call: "POST /v1/cancel".to_owned(),
        asked: "/v1/cancel?channel=ios".to_owned(),
    }
}

fn end() -> ActEnded {
    ActEnded { at: at(9), status: 200, tenant: None, answer: Some(r#"{"cancelled":7}"#.to_owned()) }
}

async fn begin(store: &dyn Store, begun: ActBegun) -> u64 {
    store.begin_act(begun).await.unwrap()
}

async fn list(store: &dyn Store, filter: ActFilter, after: Option<u64>, items: usize) -> ActPage {
    store.reader().acts(filter, after, items).await.unwrap()
}

fn ids(page: &ActPage) -> Vec<u64> {
    page.items.iter().map(|act| act.id).collect()
}

pub(super) async fn an_act_is_there_from_its_beginning_on(store: &dyn Store) {
    let all = ActFilter::default;
    assert_eq!(list(store, all(), None, 9).await, ActPage::default());
    let begun = act("shop", Some("support"), at(3));
    let id = begin(store, begun.clone()).await;
    let page = list(store, all(), None, 9).await;
    let [one] = &page.items[..] else { panic!("{page:?}") };
    assert_eq!((one.id, &one.begun, &one.ended, page.next), (id, &begun, &None, None));
    store.end_act(id, end()).await.unwrap();
    let page = list(store, all(), None, 9).await;
    assert_eq!(page.items[0].ended, Some(end()));
    let open = begin(store, act("shop", None, at(4))).await;
    store.end_act(open, ActEnded { status: 404, answer: None, ..end() }).await.unwrap();
    let page = list(store, all(), None, 9).await;
    assert_eq!((page.items[0].begun.key.as_ref(), page.items[0].id), (None, open));
    assert_eq!(page.items[0].ended.as_ref().unwrap().status, 404);
    // What it concerns may be known at the end alone.
    let late = begin(store, act("ops", None, at(5))).await;
    store.end_act(late, ActEnded { tenant: Some(name("news")), ..end() }).await.unwrap();
    let of_news = ActFilter { tenant: Some(name("news")), ..ActFilter::default() };
    let page = list(store, of_news, None, 9).await;
    assert_eq!((ids(&page), &page.items[0].begun.tenant), (vec![late], &name("news")));
    assert_eq!(page.items[0].ended, Some(end()));
}

pub(super) async fn acts_are_listed_newest_first_by_what_they_concern(store: &dyn Store) {
    let mut all = Vec::new();
    for i in 0..6 {
        let tenant = if i % 2 == 0 { "shop" } else { "news" };
        let key = if i < 3 { "support" } else { "ci" };
        all.insert(0, begin(store, act(tenant, Some(key), at(i))).await);
    }
    let page = list(store, ActFilter::default(), None, 4).await;
    assert_eq!((ids(&page), page.next), (all[..4].to_vec(), Some(all[3])));
    let page = list(store, ActFilter::default(), page.next, 4).await;
    assert_eq!((ids(&page), page.next), (all[4..].to_vec(), None));
    let shop = ActFilter { tenant: Some(name("shop")), ..ActFilter::default() };
    assert_eq!(ids(&list(store, shop.clone(), None, 9).await), [all[1], all[3], all[5]]);
    let of_support = ActFilter { key: Some(name("support")), ..shop };
    assert_eq!(ids(&list(store, of_support, None, 9).await), [all[3], all[5]]);
    let between = ActFilter { since: Some(at(1)), until: Some(at(3)), ..ActFilter::default() };
    assert_eq!(ids(&list(store, between, None, 9).await), [all[3], all[4]]);
    let none = ActFilter { tenant: Some(name("none")), ..ActFilter::default() };
    assert_eq!(list(store, none, None, 9).await, ActPage::default());
}

pub(super) async fn old_acts_go_but_the_last(store: &dyn Store) {
    let lifetime = Duration::from_hours(24);
    let retention = Retention { acts: Some(lifetime), ..Retention::for_ever() };
    let first = begin(store, act("shop", None, at(0))).await;
    let second = begin(store, act("shop", None, at(1))).await;
    let prune = async |now: Timestamp| store.prune(&retention, now).await.unwrap().removed.acts;
    assert_eq!(prune(at(0).plus(lifetime / 2)).await, 0);
    assert_eq!(prune(at(9).plus(lifetime)).await, 1);
    let left = list(store, ActFilter::default(), None, 9).await;
    assert_eq!(ids(&left), [second], "{first}");
    assert!(begin(store, act("shop", None, at(2))).await > second);
}
