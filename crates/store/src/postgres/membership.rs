//! Joining the cluster.

use super::Options;
use super::connection::Session;
use super::shared::Shared;
use crate::StoreError;

const REGISTER: &str = "INSERT INTO worker (name, version, produces, consumes, listen, alive_until) \
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + interval '10 s') RETURNING id";
const TAKE_FREE: &str = "UPDATE partition SET owner = $1, epoch = epoch + 1 WHERE owner IS NULL";
const OWNED: &str = "SELECT id FROM partition WHERE owner = $1";
const ALIVE: &str = "SELECT count(*) FILTER (WHERE consumes), count(*) FILTER (WHERE produces) FROM worker \
     WHERE alive_until > clock_timestamp()";

/// Registers this process, and takes the partitions that nobody owns.
pub(super) async fn join(
    session: &Session,
    shared: &Shared,
    options: &Options,
) -> Result<(), StoreError> {
    let client = &session.client;
    let sent = shared.clock.monotonic();
    let Options { name, version, produces, consumes, listen, .. } = options;
    let row = client.query_one(REGISTER, &[name, version, produces, consumes, listen]).await?;
    let worker: i64 = row.try_get(0)?;
    shared.set_worker(worker);
    shared.tenure.renew(sent, std::time::Duration::from_secs(5));
    if *produces {
        client.execute(TAKE_FREE, &[&worker]).await?;
    }
    let mut partitions = 0;
    for row in client.query(OWNED, &[&worker]).await? {
        partitions |= 1u64 << row.try_get::<_, i16>(0)?;
    }
    shared.set_partitions(partitions);
    let alive = client.query_one(ALIVE, &[]).await?;
    let count = |column| -> Result<usize, StoreError> {
        Ok(usize::try_from(alive.try_get::<_, i64>(column)?).unwrap_or(0))
    };
    shared.set_alive(count(0)?, count(1)?);
    Ok(())
}
