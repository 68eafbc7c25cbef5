//! `sidestep control`: a fleet's controllers, and the hands of its administrators.

mod applied;
mod change;
mod folder;
mod init;
mod invite;
mod local;
mod login;
mod rules;
mod show;
mod signposts;

use clap::Subcommand;

use crate::failure::Failure;

/// Run a fleet's controller, and decide who is a member of the fleet
///
/// Administrators sign, on their own machines; controllers keep what they have signed, and tell it to sites. A controller can
/// neither let a site in, nor bring an old state back.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  sidestep control init --outside control.example.net:4160     a fleet, and its first controller
  sidestep control up                                          run it
  sidestep control invite --site kiel --expires 1h             for `sidestep enroll` there
  sidestep control approve kiel                                let it in")]
pub(crate) enum ControlCommand {
    Init(init::InitOptions),
    Up(local::UpOptions),
    Invite(invite::InviteOptions),
    Applications(invite::ApplicationsOptions),
    Approve(change::ApproveOptions),
    Refuse(invite::RefuseOptions),
    Revoke(change::RevokeOptions),
    Policy(change::PolicyOptions),
    Authority(change::AuthorityOptions),
    Key(change::KeyOptions),
    Draft(change::DraftOptions),
    Sign(change::SignOptions),
    Publish(change::PublishOptions),
    Sites(show::SitesOptions),
    Signposts(signposts::SignpostsOptions),
    Log(show::LogOptions),
    Token(local::TokenOptions),
    Login(login::LoginOptions),
    Certificate(local::CertificateOptions),
    Backup(local::BackupOptions),
    Restore(local::RestoreOptions),
}

impl ControlCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            ControlCommand::Init(options) => options.run(),
            ControlCommand::Up(options) => options.run(),
            ControlCommand::Invite(options) => options.run(),
            ControlCommand::Applications(options) => options.run(),
            ControlCommand::Approve(options) => options.run(),
            ControlCommand::Refuse(options) => options.run(),
            ControlCommand::Revoke(options) => options.run(),
            ControlCommand::Policy(options) => options.run(),
            ControlCommand::Authority(options) => options.run(),
            ControlCommand::Key(options) => options.run(),
            ControlCommand::Draft(options) => options.run(),
            ControlCommand::Sign(options) => options.run(),
            ControlCommand::Publish(options) => options.run(),
            ControlCommand::Sites(options) => options.run(),
            ControlCommand::Signposts(options) => options.run(),
            ControlCommand::Log(options) => options.run(),
            ControlCommand::Token(options) => options.run(),
            ControlCommand::Login(options) => options.run(),
            ControlCommand::Certificate(options) => options.run(),
            ControlCommand::Backup(options) => options.run(),
            ControlCommand::Restore(options) => options.run(),
        }
    }
}
