//! API keys that calls make.

use super::support::{at, name};
use crate::{FormerKey, KeyChange, KeyChanged, Store, StoredKey};

fn key(text: &str, byte: u8) -> StoredKey {
    StoredKey {
        name: name(text),
        tenant: name("tenant"),
        sha256: [byte; 32],
        former: None,
        grants: r#"{"scopes":["send"]}"#.to_owned(),
        made_at: at(3),
    }
}

fn done(key: &StoredKey) -> KeyChanged {
    KeyChanged::Done { key: key.clone(), is_everywhere: true }
}

async fn change(store: &dyn Store, change: KeyChange) -> KeyChanged {
    store.change_key(change).await.unwrap()
}

fn known(store: &dyn Store) -> Vec<StoredKey> {
    store.watch_keys().borrow().to_vec()
}

pub(super) async fn keys_are_added_rotated_and_revoked(store: &dyn Store) {
    assert_eq!(known(store), []);
    let (shop, app) = (key("shop", 1), key("app", 2));
    assert_eq!(change(store, KeyChange::Add(shop.clone())).await, done(&shop));
    assert_eq!(change(store, KeyChange::Add(app.clone())).await, done(&app));
    assert_eq!(known(store), [app.clone(), shop.clone()], "by name");
    assert_eq!(change(store, KeyChange::Add(key("shop", 9))).await, KeyChanged::Exists);

    let rotate = |of: u8, sha256: u8, until: i64| KeyChange::Rotate {
        name: name("shop"),
        of: [of; 32],
        sha256: [sha256; 32],
        former_until: at(until),
    };
    let former = Some(FormerKey { sha256: [1; 32], until: at(7) });
    let rotated = StoredKey { sha256: [3; 32], former, ..shop.clone() };
    assert_eq!(change(store, rotate(1, 3, 7)).await, done(&rotated));
    assert_eq!(known(store), [app.clone(), rotated], "two are good for a while");
    let former = Some(FormerKey { sha256: [3; 32], until: at(9) });
    let again = StoredKey { sha256: [4; 32], former, ..shop };
    assert_eq!(change(store, rotate(3, 4, 9)).await, done(&again), "the first is good no more");

    assert_eq!(change(store, rotate(3, 5, 9)).await, KeyChanged::Overtaken, "it is another by now");

    let revoked = |key| KeyChanged::Revoked { key, is_everywhere: true };
    assert_eq!(change(store, KeyChange::Revoke(name("shop"))).await, revoked(Some(again)));
    assert_eq!(known(store), [app]);
    assert_eq!(change(store, KeyChange::Revoke(name("shop"))).await, revoked(None));
    assert_eq!(change(store, rotate(4, 5, 9)).await, KeyChanged::Unknown);
    assert_eq!(change(store, KeyChange::Add(key("shop", 1))).await, done(&key("shop", 1)));
}
