// Light or dark: as the system has it, unless somebody has chosen. Before the first paint, so that nothing flashes.
{
    const chosen = localStorage.getItem("theme");
    if (chosen) document.documentElement.dataset.theme = chosen;
}
