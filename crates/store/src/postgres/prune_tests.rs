//! Parts of a batch that go with its contents.

use flow::Tasks;

use super::setup_tests::{connect, fresh, open};
use crate::rows::traces_of_contents::traces_go_with_contents;

#[tokio::test]
async fn traces_go_with_contents_on_postgres() {
    let database = fresh();
    let store = open(&database).await;
    let mut tasks = Tasks::default();
    let client = connect(&database, &mut tasks).await;
    let count =
        async || client.query_one("SELECT count(trace) FROM batch", &[]).await.unwrap().get(0);
    traces_go_with_contents(&store, count).await;
}
