//! WireGuard whose packets travel with Sidestep, masked (`carry = "mask"`): what that adds to WireGuard alone.

use crate::comparison::contender::{Contender, not_installed};
use crate::comparison::kernel_wireguard::KernelWireGuard;
use crate::comparison::sidestep::Sidestep;
use crate::comparison::wireguard::WireGuard;
use lab::Error;
use lab::command::find;
use lab::topology::Site;
use lab::{Builder, Lab};

/// One implementation of WireGuard, and the tunnel that it travels with.
pub(crate) struct Masked {
    name: String,
    inside: Box<dyn Contender>,
    tunnel: Sidestep,
    /// UDP port of WireGuard's, where Sidestep is to leave the device alone.
    port: Option<u16>,
}

impl Masked {
    /// The kernel's and that in user space which everybody knows.
    pub(crate) fn kinds(rotation: &str) -> Vec<Self> {
        vec![Self::in_the_kernel(rotation), Self::in_user_space(rotation)]
    }

    /// The kernel's.
    pub(crate) fn in_the_kernel(rotation: &str) -> Self {
        Self::over(Box::new(KernelWireGuard), rotation)
    }

    /// That in user space.
    pub(crate) fn in_user_space(rotation: &str) -> Self {
        Self::over(Box::new(WireGuard::known()), rotation)
    }

    fn over(inside: Box<dyn Contender>, rotation: &str) -> Self {
        let (name, tunnel) = (format!("{}-mask", inside.name()), Sidestep::masking(rotation));
        Self { name, inside, tunnel, port: None }
    }

    /// The same, whose endpoints nobody leads into the tunnel: its packets are masked while somebody else does.
    pub(crate) fn by_port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Starts WireGuard, and has the gateways' configurations say that it travels with the tunnel.
    ///
    /// # Errors
    /// When it does not start or a configuration cannot be written.
    pub(crate) fn prepare(&mut self, lab: &mut Lab) -> Result<(), Error> {
        self.inside.start(lab, 0)?;
        for site in [Site::A, Site::B] {
            let device = self.inside.device(lab, site).unwrap_or_default();
            let what = self.port.map_or(format!("interface = \"{device}\""), |port| format!("port = {port}"));
            let wrap = format!("[[wrap]]\npeer = \"site-{}\"\n{what}\n", site.other().letter());
            lab.gateway(site).add_table(&wrap)?;
        }
        Ok(())
    }
}

impl Contender for Masked {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!(
            "{}; it travels with Sidestep, masked in the kernel: {}",
            self.inside.about(),
            self.tunnel.about()
        )
    }

    fn missing(&self) -> Option<String> {
        self.inside.missing().or_else(|| find("wg").is_none().then(|| not_installed("wg", "wireguard")))
    }

    fn lab(&self, builder: Builder) -> Builder {
        self.tunnel.lab(builder)
    }

    fn start(&mut self, lab: &mut Lab, _: u32) -> Result<(), Error> {
        self.prepare(lab)?;
        if self.port.is_none() {
            return self.tunnel.start(lab, 0);
        }
        // Nothing is masked yet.
        lab.gateway_a().start()?;
        lab.gateway_b().start()
    }

    fn device(&self, lab: &Lab, site: Site) -> Option<String> {
        self.inside.device(lab, site)
    }

    fn stop(&mut self, lab: &mut Lab) {
        self.tunnel.stop(lab);
        self.inside.stop(lab);
    }

    /// WireGuard's: those of the gateways carry nothing.
    fn processes(&self, lab: &mut Lab) -> Option<[u32; 2]> {
        self.inside.processes(lab)
    }
}
