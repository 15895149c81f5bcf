// Runs before the page is drawn, so that a chosen theme does not flash.
(function () {
  "use strict";
  try {
    var theme = localStorage.getItem("ottla-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (error) { /* no storage: the system's theme */ }
})();
