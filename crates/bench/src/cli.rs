//! The command line of `sidestep-lab`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::adversary::active::command as attack;
use crate::adversary::linking;
use crate::adversary::recognise::command as recognise;
use crate::helper::{self, HelperCommand, stop_flag};
use crate::{
    bandwidth, caches, comparison, demo, experiment, fleet, many, nat, scripts, shape, stack, status, wrap,
};
use lab::Error;
use lab::command::find;
use lab::impairment::Impairment;
use lab::topology::{Node, Site, Topology};
use lab::{Builder, Gateways, Impairer, Lab, Profile};

/// Network-namespace labs: two gateways, two hosts and what is between them, on one machine
#[derive(Debug, Parser)]
#[command(name = "sidestep-lab", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  sidestep-lab up\n  sidestep-lab exec ha -- ping -c 3 2001:db8:b::2\n  \
                  sidestep-lab status\n  sidestep-lab down\n  sidestep-lab demo --report /tmp/report")]
pub struct Cli {
    /// The program under test [default: $SIDESTEP_BIN, else `sidestep` beside this program, else on the path]
    #[arg(long, global = true)]
    program: Option<PathBuf>,
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Build a lab and start its gateways; it stays until `sidestep-lab down`
    #[command(after_help = "Examples:\n  sidestep-lab up --rotation 1s\n  \
                            sidestep-lab up --topology tunneled --firewall\n  \
                            sidestep-lab up --impair delay=20ms,jitter=5ms,loss=2%,reorder=1%")]
    Up(LabOptions),
    /// End a lab's processes and remove its namespaces, also after a crash
    Down {
        /// Which lab
        #[command(flatten)]
        name: Name,
    },
    /// What runs where, and what the gateways say
    Status {
        /// Which lab
        #[command(flatten)]
        name: Name,
    },
    /// Run a command on a machine of the lab: ha, ga, r, r2, gb or hb
    #[command(after_help = "Examples:\n  sidestep-lab exec ha -- ping -c 3 2001:db8:b::2\n  \
                            sidestep-lab exec r -- tcpdump -ni a")]
    Exec {
        /// Which lab
        #[command(flatten)]
        name: Name,
        /// The machine
        node: Node,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Half a minute of traffic with a live view; leaves a report with plots
    #[command(after_help = "Examples:\n  sidestep-lab demo\n  \
                            sidestep-lab demo --topology switched --rotation 1s --seconds 60 --report /tmp/report")]
    Demo {
        /// What the names of the lab's namespaces begin with
        #[arg(long, default_value = "sidestep-demo")]
        prefix: String,
        /// How the gateways are connected
        #[arg(long, value_enum, default_value_t)]
        topology: Topology,
        /// Rotation interval
        #[arg(long, default_value = "2s")]
        rotation: String,
        /// Seconds of traffic
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=3600))]
        seconds: u32,
        /// Directory of the report
        #[arg(long, default_value = "report")]
        report: PathBuf,
        /// No tunnel: the baseline
        #[arg(long)]
        no_tunnel: bool,
    },
    /// Compare with no tunnel and other tunnels: throughput, latency, processor time, memory
    #[command(after_help = "Examples:\n  sidestep-lab bench --quick\n  \
                            sidestep-lab bench --report report/bench --json bench.json\n  \
                            sidestep-lab bench --against wireguard-go,sidestep-chacha --only tcp,load\n\n\
                            Other tunnels are looked for on the path; scripts/contenders installs them below \
                            target/tools.\nOne that is not there is left out, and named.")]
    #[command(args_conflicts_with_subcommands = true)]
    Bench {
        #[command(flatten)]
        options: comparison::BenchOptions,
        #[command(subcommand)]
        other: Option<OtherBench>,
    },
    /// Repeat the test plans that MT6D and an IPv6 gateway were measured with, and put results beside the published ones
    #[command(after_help = "Examples:\n  sidestep-lab experiment all --out report/experiments\n  \
                            sidestep-lab experiment ping_std_1k --full --runs 10 --out report/ping\n  \
                            sidestep-lab experiment http --topology switched --against sidestep\n  \
                            sidestep-lab experiment soak --duration 7d --out report/week\n  \
                            sidestep-lab experiment t2 --against sidestep,nftables\n\n\
                            Interrupted (Ctrl-C), the same command goes on where it stopped.\n\
                            docs/experiments.md says what each does, and where it differs from the published plan; \
                            docs/gateway-performance.md of t1, t2 and t3.")]
    Experiment(experiment::ExperimentOptions),
    /// One gateway with many peers: memory, processor time, losses
    #[command(
        after_help = "Examples:\n  sidestep-lab many\n  sidestep-lab many --peers 50 --rotation 1s --seconds 60"
    )]
    Many {
        /// What the names of the namespaces begin with
        #[arg(long, default_value = "many")]
        prefix: String,
        /// How many peers
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
        peers: u16,
        /// So many further peers in its configuration, which never answer
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
        configured: u32,
        /// Echoes that each peer sends in a second
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
        echoes: u32,
        /// Rotation interval
        #[arg(long, default_value = "10s")]
        rotation: String,
        /// Seconds of traffic
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
        seconds: u32,
        /// Measure nothing: stay up, with the echoes, until SIGTERM
        #[arg(long)]
        hold: bool,
        /// Write the measurements to this file
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// The example scripts that cache TFTP and HTTP: 26 files from 1 octet to 32 MB, from the server and from the cache
    #[command(after_help = "Examples:\n  sidestep-lab caches\n  \
                            sidestep-lab caches --only tftp --delay 100ms --json caches.json")]
    Caches(caches::CachesOptions),
    /// A packet script in both tiers beside plain forwarding and the kernel's NAT: throughput, small packets, latency
    #[command(
        after_help = "Examples:\n  sidestep-lab nat\n  sidestep-lab nat --family ipv4 --only tcp,ping\n  \
                            sidestep-lab nat --no-offloads --json nat.json"
    )]
    Nat(nat::NatOptions),
    /// Follow pairs that share their prefixes by what an observer of the path sees of them
    #[command(after_help = "Examples:\n  sidestep-lab adversary --report report/adversary\n  \
                            sidestep-lab adversary --pairs 16 --only g711 --peer 'padding = \"full\"' --seed 2\n  \
                            sidestep-lab adversary attack --tries 100\n\n\
                            The judges learn, with scikit-learn: Debian's python3-sklearn.")]
    #[command(args_conflicts_with_subcommands = true)]
    Adversary {
        #[command(flatten)]
        options: linking::LinkingOptions,
        #[command(subcommand)]
        other: Option<OtherAdversary>,
    },
    /// Machines for the sites of a fleet: contrib/fleet/twenty-sites
    #[command(after_help = "Examples:\n  sidestep-lab fleet up 20\n  \
                            sidestep-lab fleet at 1 sidestep control sites\n  sidestep-lab fleet down")]
    Fleet(fleet::FleetOptions),
    #[command(flatten)]
    Helper(HelperCommand),
}

/// What else is compared.
#[derive(Clone, Debug, Subcommand)]
enum OtherBench {
    /// The host stack's TCP beside the kernel's and other stacks in user space; `ipsec up` beside libipsec and the moving
    /// tunnel; section 7 of the paper on NRL's IPv6
    #[command(after_help = "Examples:\n  sidestep-lab bench stack\n  \
                            sidestep-lab bench stack --only tunnels --report report/stack\n  \
                            sidestep-lab bench stack --figure docs/stack-latency.svg --docs docs/stack-performance.md")]
    Stack(stack::StackOptions),
    /// What a constant shape costs, and how exactly it keeps its times: alone, filled, and on a busy machine
    #[command(after_help = "Examples:\n  sidestep-lab bench shape\n  \
                            sidestep-lab bench shape --rates 2,20 --seconds 60\n  \
                            sidestep-lab bench shape --docs docs/operations.md")]
    Shape(shape::ShapeOptions),
    /// What `bandwidth` of an uplink does to the latency under load, and what it costs; needs a kernel with CAKE
    #[command(after_help = "Examples:\n  sidestep-lab bench bandwidth\n  \
                            sidestep-lab bench bandwidth --down 100 --up 20\n  \
                            sidestep-lab bench bandwidth --docs docs/gateway-performance.md")]
    Bandwidth(bandwidth::BandwidthOptions),
    /// What it costs WireGuard to travel masked, between the same two gateways
    #[command(after_help = "Examples:\n  sidestep-lab bench wrap\n  sidestep-lab bench wrap --kernel\n  \
                            sidestep-lab bench wrap --repetitions 60 --docs docs/performance.md")]
    Wrap(wrap::WrapOptions),
    /// Six jobs by packet scripts, nftables, eBPF written in C, Suricata and a proxy: lines, packets in a second, latency
    #[command(after_help = "Examples:\n  sidestep-lab bench scripts\n  \
                            sidestep-lab bench scripts --only drop,limit --against script-kernel,nftables,c\n  \
                            sidestep-lab bench scripts --docs docs/scripting-performance.md --report report/scripts\n\n\
                            `scripts/setup peers` installs clang, HAProxy and Suricata. Who is not there is left out, and \
                            named.")]
    Scripts(scripts::ScriptsOptions),
}

/// What else an adversary does.
#[derive(Clone, Debug, Subcommand)]
enum OtherAdversary {
    /// Attack pairs on the path between them, and judge whether what they send shows it
    #[command(after_help = "Examples:\n  sidestep-lab adversary attack --tries 100\n  \
                            sidestep-lab adversary attack --kinds error.2,replay --tries 40 --json attack.json")]
    Attack(attack::AttackOptions),
    /// Capture pairs, and judge whether their flows can be told from those of other programs
    #[command(after_help = "Examples:\n  scripts/captures && sidestep-lab adversary recognise\n  \
                            sidestep-lab adversary recognise --foreign DIRECTORY --json recognise.json")]
    Recognise(recognise::RecogniseArguments),
    /// Put what several runs wrote with --json into one table
    #[command(
        after_help = "Examples:\n  sidestep-lab adversary summary report/*.json --docs docs/unlinkability.md"
    )]
    Summary(linking::SummaryOptions),
}

/// Which lab.
#[derive(Clone, Debug, Args)]
pub struct Name {
    /// What the names of the lab's namespaces begin with
    #[arg(long, default_value = Builder::DEFAULT_PREFIX)]
    prefix: String,
}

/// What kind of lab.
#[derive(Clone, Debug, Args)]
pub struct LabOptions {
    /// Which lab
    #[command(flatten)]
    name: Name,
    /// How the gateways are connected
    #[arg(long, value_enum, default_value_t)]
    topology: Topology,
    /// What the gateways are to hosts and routers
    #[arg(long, value_enum, default_value_t)]
    gateways: Gateways,
    /// What they speak with each other
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// Rotation interval
    #[arg(long, default_value = "2s")]
    rotation: String,
    /// Lanes (1 to 16)
    #[arg(long, default_value_t = 1)]
    lanes: u8,
    /// Padding policy: none, buckets, full
    #[arg(long, default_value = "none")]
    padding: String,
    /// Shape, as in the configuration: "none" or { constant = "2Mbit/s" }, in quotes as there
    #[arg(long, default_value = "\"none\"")]
    shape: String,
    /// No tunnel: the routers route the inner networks (a baseline)
    #[arg(long)]
    no_tunnel: bool,
    /// Impair the middle link: delay, jitter, loss, reorder, reorder-by, duplicate, rate, replay, mtu, seed
    #[arg(long, value_name = "NAME=VALUE,…")]
    impair: Option<Impairment>,
    /// Impair the direction from B to A in another way
    #[arg(long, value_name = "NAME=VALUE,…")]
    impair_back: Option<Impairment>,
    /// What impairs the middle link
    #[arg(long, value_enum, default_value_t)]
    impair_with: Impairer,
    /// A stateful firewall before each site
    #[arg(long)]
    firewall: bool,
    /// MTU of the middle link
    #[arg(long)]
    mtu: Option<u16>,
    /// Drop the routers' Packet Too Big messages
    #[arg(long)]
    filter_too_big: bool,
    /// No segmentation offload on the outer links: captures show packets as on a cable
    #[arg(long)]
    whole_packets: bool,
    /// Use the kernel's sit device for the 6in4 tunnel
    #[arg(long)]
    sit: bool,
}

impl LabOptions {
    /// The lab that they describe.
    fn builder(&self, program: &Path) -> Builder {
        let mut builder = Lab::builder(program)
            .prefix(&self.name.prefix)
            .topology(self.topology)
            .gateways(self.gateways)
            .profile(self.profile)
            .rotation(&self.rotation)
            .lanes(self.lanes)
            .padding(&self.padding)
            .shape(&self.shape)
            .tunnel(!self.no_tunnel)
            .impairer(self.impair_with)
            .firewall(self.firewall)
            .filter_too_big(self.filter_too_big)
            .whole_packets(self.whole_packets)
            .sit(self.sit);
        if let Some(impairment) = &self.impair {
            builder = builder.impairment(impairment.clone());
        }
        if let Some(impairment) = &self.impair_back {
            builder = builder.impairment_back(impairment.clone());
        }
        if let Some(mtu) = self.mtu {
            builder = builder.middle_mtu(mtu);
        }
        builder
    }
}

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    let Cli { program, command } = Cli::parse();
    run(command, program).unwrap_or_else(|error| {
        eprintln!("sidestep-lab: {error}");
        ExitCode::FAILURE
    })
}

/// Where the program under test is.
fn program_under_test(named: Option<PathBuf>) -> Result<PathBuf, Error> {
    let beside =
        || Some(std::env::current_exe().ok()?.with_file_name("sidestep")).filter(|file| file.is_file());
    let program = named
        .or_else(|| std::env::var_os("SIDESTEP_BIN").map(PathBuf::from))
        .or_else(beside)
        .or_else(|| find("sidestep"))
        .ok_or_else(|| Error::Usage("`sidestep` is not there: build it, or name it with --program".into()))?;
    // A lab outlives the folder that it was started in.
    std::path::absolute(&program).map_err(|source| Error::file(program, source))
}

fn run(command: LabCommand, program: Option<PathBuf>) -> Result<ExitCode, Error> {
    let program = || program_under_test(program);
    match command {
        LabCommand::Up(options) => up(&options, &program()?),
        LabCommand::Down { name } => lab::down(&name.prefix).map(|()| ExitCode::SUCCESS),
        LabCommand::Status { name } => {
            print!("{}", status::text(&Lab::attach(&name.prefix)?));
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Exec { name, node, command } => exec(&Lab::attach(&name.prefix)?, node, &command),
        LabCommand::Demo { prefix, topology, rotation, seconds, report, no_tunnel } => {
            let tunnel = !no_tunnel;
            let options = demo::DemoOptions { prefix, topology, rotation, seconds, report, tunnel };
            demo::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Bench { other: Some(OtherBench::Stack(options)), .. } => {
            stack::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Bench { other: Some(OtherBench::Shape(options)), .. } => {
            shape::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Bench { other: Some(OtherBench::Bandwidth(options)), .. } => {
            bandwidth::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Bench { other: Some(OtherBench::Wrap(options)), .. } => {
            wrap::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Bench { other: Some(OtherBench::Scripts(options)), .. } => {
            scripts::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Bench { options, other: None } => comparison::run(&options, &program()?, &stop_flag()?),
        LabCommand::Experiment(options) => experiment::run(&options, &program()?, &stop_flag()?),
        LabCommand::Caches(options) => caches::run(&options, &program()?, &stop_flag()?),
        LabCommand::Many { prefix, peers, configured, echoes, rotation, seconds, hold, json } => {
            let options =
                many::ManyOptions { prefix, peers, configured, echoes, rotation, seconds, hold, json };
            many::run(&options, &program()?, &stop_flag()?)
        }
        LabCommand::Nat(options) => nat::run(&options, &program()?, &stop_flag()?),
        LabCommand::Adversary { options, other } => match other {
            None => linking::run(options, &program()?, &stop_flag()?),
            Some(OtherAdversary::Attack(options)) => attack::run(&options, &program()?, &*stop_flag()?),
            Some(OtherAdversary::Summary(options)) => linking::summarise(&options),
            Some(OtherAdversary::Recognise(options)) => recognise::run(&options, &program()?, &*stop_flag()?),
        },
        LabCommand::Fleet(options) => fleet::run(options, program),
        LabCommand::Helper(command) => helper::run(command),
    }
}

fn up(options: &LabOptions, program: &Path) -> Result<ExitCode, Error> {
    let prefix = &options.name.prefix;
    if Lab::attach(prefix).is_ok() {
        return Err(Error::Usage(format!(
            "lab `{prefix}` is up already: `sidestep-lab down` first, or --prefix"
        )));
    }
    let mut lab = options.builder(program).build()?;
    lab.start()?;
    print!("{}", status::text(&lab));
    let target = lab.host(Site::B);
    println!("\nTry: sidestep-lab exec --prefix {prefix} ha -- ping -c 3 {target}");
    lab.leave_up();
    Ok(ExitCode::SUCCESS)
}

/// Runs a command on a machine with our own terminal, and passes its exit status on.
fn exec(lab: &Lab, node: Node, words: &[String]) -> Result<ExitCode, Error> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::Usage("no command given".into()));
    };
    let mut command = lab.command(node, program)?;
    let status = command.args(arguments).status().map_err(|source| Error::system("ip netns exec", source))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}
