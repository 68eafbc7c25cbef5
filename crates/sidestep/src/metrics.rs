//! `metrics`: what the daemons say about themselves, for Prometheus and others.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use metrics::{Format, Place, Sources};

use crate::failure::Failure;
use crate::terminal::print;

/// Serve what the daemons say about themselves as metrics, or print it once
///
/// All tunnels of this machine, and the gateway and the packet scripts of this network namespace, are asked each time that
/// somebody asks here; or only those that are named. It needs no privileges, only to be in the group sidestep, and gives up what
/// it has. docs/metrics.md lists the metrics.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep metrics --listen '[::1]:9469'                       http://[::1]:9469/metrics, for Prometheus
  sidestep metrics --listen unix:/run/sidestep-metrics/http    for a proxy in front of it
  sidestep metrics --once > /var/lib/prometheus/node-exporter/sidestep.prom.new
  systemctl enable --now sidestep-metrics                      the first, as a service

It listens at one address, which must not be in a prefix that a tunnel hops in.")]
#[command(group(ArgGroup::new("way").required(true).args(["listen", "once"])))]
pub(crate) struct MetricsOptions {
    /// Names of tunnels, `gateway`, `scripts`; all that there are, if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// A control socket, beside those that are named
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Answer HTTP there: ADDRESS:PORT or unix:PATH
    #[arg(long, value_name = "PLACE")]
    listen: Option<Place>,
    /// Print them, in Prometheus' text format
    #[arg(long)]
    once: bool,
    /// Print them as OpenMetrics
    #[arg(long, requires = "once")]
    openmetrics: bool,
}

impl MetricsOptions {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut sockets = self.socket;
        for name in &self.names {
            sockets.push(match name.as_str() {
                "gateway" => control::socket_of_gateway()?,
                "scripts" => control::socket_of_scripts()?,
                tunnel => control::socket_of(tunnel),
            });
        }
        let failed = |error: metrics::Error| Failure::Message(error.to_string());
        let sources = Sources::new(sockets).map_err(failed)?;
        let Some(place) = self.listen else {
            let format = if self.openmetrics { Format::OpenMetrics } else { Format::Text };
            print(metrics::once(&sources, format).map_err(failed)?)?;
            return Ok(ExitCode::SUCCESS);
        };
        events::start_log();
        match metrics::serve(&place, sources).map_err(failed)? {}
    }
}
