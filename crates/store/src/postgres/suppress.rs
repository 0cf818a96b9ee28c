//! The suppression list.

use std::collections::HashSet;

use async_trait::async_trait;
use notification::{ByteString, Name};
use tokio_postgres::Error;

use super::round::{Failure, Round};
use super::writer::Ask;
use crate::Suppression;

/// Adds to the list.
#[derive(Debug)]
pub(super) struct Suppress(pub(super) Vec<Suppression>);

/// Takes off the list.
#[derive(Debug)]
pub(super) struct Unsuppress(pub(super) Name, pub(super) Vec<ByteString>);

#[async_trait]
impl Ask for Suppress {
    type Answer = ();

    async fn ask(&self, round: &mut Round<'_>) -> Result<(), Failure> {
        Ok(round.suppress(&self.0).await?)
    }
}

#[async_trait]
impl Ask for Unsuppress {
    type Answer = Vec<bool>;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        let recipients: Vec<&str> = self.1.iter().map(|recipient| &**recipient).collect();
        let listable: Vec<&str> = recipients.iter().copied().filter(|one| is_text(one)).collect();
        let delete = "DELETE FROM suppression WHERE channel = $1 AND recipient = ANY($2) RETURNING recipient";
        let rows = round.rows(delete, &[&self.0.as_str(), &listable]).await?;
        let mut gone = HashSet::new();
        for row in &rows {
            gone.insert(row.try_get::<_, &str>(0)?);
        }
        // Of one that is named twice, the first was there.
        Ok(recipients.into_iter().map(|recipient| gone.remove(recipient)).collect())
    }
}

// === impl Round ===

impl Round<'_> {
    /// Adds to the list; one that is there already keeps its reason.
    pub(super) async fn suppress(&mut self, suppressions: &[Suppression]) -> Result<(), Error> {
        let mut columns = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for one in suppressions.iter().filter(|one| is_text(&one.recipient)) {
            columns.0.push(one.channel.as_str());
            columns.1.push(&*one.recipient);
            columns.2.push(one.reason.replace('\0', "\u{fffd}"));
            columns.3.push(one.since.millis());
        }
        // In one order everywhere, so that two processes never wait for each other.
        let insert = "INSERT INTO suppression (channel, recipient, reason, since) \
             SELECT DISTINCT ON (channel, recipient) * \
             FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[]) AS new (channel, recipient, reason, since) \
             ORDER BY channel, recipient ON CONFLICT DO NOTHING";
        self.execute(insert, &[&columns.0, &columns.1, &columns.2, &columns.3]).await.map(drop)
    }

    /// Which of `recipients`, each on its channel, are on the list: their positions.
    pub(super) async fn suppressed_of(
        &mut self,
        recipients: &[(&str, &str)],
    ) -> Result<HashSet<usize>, Error> {
        let is_used: bool =
            self.row("SELECT EXISTS (SELECT FROM suppression)", &[]).await?.try_get(0)?;
        if !is_used || recipients.is_empty() {
            return Ok(HashSet::new());
        }
        let (channels, names): (Vec<&str>, Vec<&str>) = recipients.iter().copied().unzip();
        let select = "SELECT wanted.place FROM unnest($1::text[], $2::text[]) WITH ORDINALITY \
             AS wanted (channel, recipient, place) JOIN suppression USING (channel, recipient)";
        let rows = self.rows(select, &[&channels, &names]).await?;
        let place = |row: &tokio_postgres::Row| {
            let place: i64 = row.try_get(0)?;
            Ok(usize::try_from(place - 1).unwrap_or(usize::MAX))
        };
        rows.iter().map(place).collect()
    }
}

/// Whether PostgreSQL can keep it as a text. Nobody can be sent to whose name has a NUL, so nobody is missed.
fn is_text(recipient: &str) -> bool {
    !recipient.contains('\0')
}
