//! `belfry audit`: counts everything from the ground up.

use std::fmt::Write as _;
use std::process::ExitCode;

use api::TenantAccount;
use clap::Args;
use notification::Account;
use serde::{Deserialize, Serialize};
use store::Audit;

use crate::args::StoreArgs;
use crate::reader::{ReadSource, SOURCE_HELP};
use crate::{account, output, reader};

/// `belfry audit`
#[derive(Debug, Args)]
#[command(after_help = SOURCE_HELP)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The account in the words of `--json`.
#[derive(Debug, Serialize, Deserialize)]
struct AuditReport {
    #[serde(flatten)]
    totals: Account,
    balanced: bool,
    #[serde(skip_serializing)]
    problem_count: u64,
    problems: Vec<String>,
    /// Of each tenant that has any, by name. An older engine says nothing of them.
    #[serde(default)]
    tenants: Vec<TenantAccount>,
}

/// Prints the account; the exit code is 1 when it does not balance.
pub(crate) fn run(args: &AuditArgs, source: &ReadSource) -> anyhow::Result<ExitCode> {
    let report = match source {
        ReadSource::Engine(client) => client.get("/v1/audit")?,
        ReadSource::Store(store) => {
            AuditReport::of(reader::ask(store, async |reads| Ok(reads.audit().await?))?)
        }
    };
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&report.to_text()?)?;
    }
    Ok(if report.balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// === impl AuditReport ===

impl AuditReport {
    fn of(audit: Audit) -> Self {
        let Audit { account, problem_count, problems, tenants, .. } = audit;
        let balanced = account.is_balanced() && problem_count == 0;
        let tenants = TenantAccount::of_all(&tenants);
        Self { totals: account, balanced, problem_count, problems, tenants }
    }

    fn to_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        account::push_text(&self.totals, &mut text)?;
        // Of one alone it is the account itself.
        if self.tenants.len() > 1 {
            for account in &self.tenants {
                writeln!(text, "{}", account::to_line(account))?;
            }
        }
        for problem in &self.problems {
            writeln!(text, "problem: {problem}")?;
        }
        // The list of problems is bounded; their number is not.
        let not_shown = self.problem_count.saturating_sub(self.problems.len() as u64);
        if not_shown > 0 {
            writeln!(text, "and {not_shown} more problems")?;
        }
        let verdict =
            if self.balanced { "the account balances" } else { "THE ACCOUNT DOES NOT BALANCE" };
        writeln!(text, "{verdict}")?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_written_with_exactly_these_words() {
        let account = Account { accepted: 3, delivered: 2, pending: 1, ..Account::default() };
        let audit = Audit { account, ..Audit::default() };
        let json = serde_json::to_string(&AuditReport::of(audit)).unwrap();
        assert_eq!(
            json,
            r#"{"accepted":3,"delivered":2,"refused":0,"expired":0,"cancelled":0,"suppressed":0,"in_doubt":0,"dead":0,"pending":1,"balanced":true,"problems":[],"tenants":[]}"#
        );
    }

    #[test]
    fn a_problem_unbalances_an_account_whose_sum_is_right() {
        let problems = vec!["batch 7 is cut short".to_owned()];
        let audit = Audit { problems, problem_count: 3, ..Audit::default() };
        let report = AuditReport::of(audit);
        assert!(!report.balanced);
        let text = report.to_text().unwrap();
        let end =
            "problem: batch 7 is cut short\nand 2 more problems\nTHE ACCOUNT DOES NOT BALANCE\n";
        assert!(text.ends_with(end), "{text}");
    }
}
