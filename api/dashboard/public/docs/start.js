// The browser's session goes with the description and with each try; without one, the dashboard says how to sign in.
fetch("/openapi.json").then((answer) => {
  if (answer.status === 401) location.replace("/");
  else SwaggerUIBundle({ url: "/openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null });
});
