// Light or dark: as the notebook around a widget says, otherwise as the system does.

/** Whether a notebook around the page is dark; null if there is none, or it does not say. */
function notebookIsDark(): boolean | null {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset; // JupyterLab and Notebook 7; VS Code
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  if (vscodeThemeKind !== undefined) return !vscodeThemeKind.endsWith("light");
  const theme = document.documentElement.getAttribute("theme"); // Colab
  return theme === null ? null : theme === "dark";
}

/** Call `set` now and whenever the theme changes, until the returned function is called. */
export function watchTheme(set: (dark: boolean) => void): () => void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const tell = () => set(notebookIsDark() ?? system.matches);
  const observer = new MutationObserver(tell);
  for (const element of [document.documentElement, document.body]) {
    observer.observe(element, { attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind", "theme"] });
  }
  system.addEventListener("change", tell);
  tell();
  return () => {
    observer.disconnect();
    system.removeEventListener("change", tell);
  };
}
